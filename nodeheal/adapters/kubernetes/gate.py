"""Takes nodes out of service: a taint that names the incident, and a cordon beside it, in one patch; on HyperPod its
label of the node's health, too.

`spec.taints` is one value for the API: a patch with one taint removes all others. So a node is read, changed and
written over the very version that was read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError, Object, refusals_named
from nodeheal.adapters.kubernetes.hyperpod import (
    HEALTH,
    SCHEDULABLE,
    is_released_with_us,
    labels_of,
    labels_of_isolated,
)
from nodeheal.adapters.kubernetes.nodes import (
    CORDONED_TAINT,
    ISOLATED_TAINT,
    NODES,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_MARK,
    OWN_TAINTS,
    has_cordon_mark,
    holder_of,
    is_cordon_ours,
    is_cordoned,
    is_in_service,
    isolated_for,
    taints_of,
)
from nodeheal.domain.errors import NotAccepted, NotEnrolled, NotFound
from nodeheal.domain.fleet.holder import Holder
from nodeheal.domain.fleet.liveness import ProbeAnswer
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.scheduler import Drained, NodePlacement

_ATTEMPTS = 5  # kubelets and controllers write a node every few seconds
_NO_INCIDENT = "none"


class KubernetesGate:
    """Implements NodeGate and NodeLivenessProbe."""

    def __init__(self, clusters: EksClusters) -> None:
        self._clusters = clusters

    def placement_of(self, node: Node) -> NodePlacement:
        with refusals_named(node.node_id):
            node_object = self._clusters.nodes(node.cluster.name).find(node)
        return NodePlacement(node_object["metadata"]["name"], is_in_service(node_object), holder_of(node_object))

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        drained: dict[str, Drained] = {}
        for node in nodes:
            try:
                after = self._change(node, partial(_closed, incident=node.open_incident))
            except NotFound:
                continue
            drained[node.node_id] = Drained(after["metadata"]["name"], has_tasks=True, held_by=holder_of(after))
        if not drained:
            raise NotFound(f"{nodes[0].instance_id} is no node of Kubernetes cluster {nodes[0].cluster.name}")
        return drained

    def undrain(self, node: Node, placement: NodePlacement) -> Holder | None:
        return holder_of(self._change(node, _opened))

    def take_out_of_service(self, node: Node, names: Collection[str]) -> None:
        """Have Kubernetes forget the deleted pods of an isolated node, if it is one of these. Only for a machine that
        is off: Kubernetes starts them elsewhere and attaches their volumes there.

        Raises NotFound, NotEnrolled, NotAccepted.
        """
        self._change(node, partial(_out_of_service, incident=node.open_incident, names=names))

    def liveness(self, node: Node) -> ProbeAnswer:
        try:
            node_object = self._clusters.nodes(node.cluster.name).find(node)
        except NotFound:
            return ProbeAnswer("Kubernetes", None, f"no node of cluster {node.cluster.name}")
        except (ApiError, NotAccepted) as error:
            return ProbeAnswer("Kubernetes", None, f"cannot tell ({error})")
        return _reached(node_object)

    def _change(self, node: Node, change: Callable[[Object], dict[str, Any] | None]) -> Object:
        """Return the node after the change; where it is None, as it is. Raises NotFound, NotEnrolled, NotAccepted."""
        for _ in range(_ATTEMPTS):
            with refusals_named(node.node_id):
                node_object = self._clusters.nodes(node.cluster.name).find(node)
            patch = change(node_object)
            if patch is None:
                return node_object
            patch.setdefault("metadata", {})["resourceVersion"] = node_object["metadata"]["resourceVersion"]
            try:
                return self._clusters.api(node.cluster.name).patch(f"{NODES}/{node_object['metadata']['name']}", patch)
            except ApiError as error:
                if error.status == 403:
                    raise NotEnrolled(f"{node.node_id}: {error.message}") from error
                if error.status not in (404, 409):
                    raise NotAccepted(f"{node.node_id}: {error}") from error
        raise NotAccepted(f"{node.node_id} is being written by others: tried {_ATTEMPTS} times")


def _reached(node_object: Object) -> ProbeAnswer:
    """Return whether the kubelet renews its lease: where it does not, a controller sets Ready to Unknown."""
    conditions = node_object.get("status", {}).get("conditions") or ()
    ready: Object = next((each for each in conditions if each.get("type") == "Ready"), {})
    if ready.get("status") == "Unknown":
        return ProbeAnswer("Kubernetes", is_up=False, text="the kubelet has stopped renewing its lease")
    return ProbeAnswer("Kubernetes", is_up=True if ready else None, text=f"Ready is {ready.get('status', 'not set')}")


def _closed(node_object: Object, incident: str | None) -> dict[str, Any] | None:
    """Return the patch that isolates the node for the incident; None: it is isolated so. Where a person has taken our
    cordon off since then, it stays off.
    """
    wanted = {"key": ISOLATED_TAINT, "value": incident or _NO_INCIDENT, "effect": "NoSchedule"}
    if isolated_for(node_object) == wanted["value"]:
        return None
    others = [
        taint for taint in taints_of(node_object) if taint.get("key") not in (ISOLATED_TAINT, CORDONED_TAINT["key"])
    ]
    ours = [wanted] if is_cordoned(node_object) and not has_cordon_mark(node_object) else [wanted, CORDONED_TAINT]
    labels = labels_of_isolated(node_object)
    return {
        "spec": {"taints": [*others, *ours], "unschedulable": True},
        **({"metadata": {"labels": labels}} if labels else {}),
    }


def _out_of_service(node_object: Object, incident: str | None, names: Collection[str]) -> dict[str, Any] | None:
    """Return the patch that has the node's deleted pods forgotten; None: it is another node, or not isolated for the
    incident, or it is said already, by whomever.
    """
    taints = taints_of(node_object)
    is_said = any(taint.get("key") == OUT_OF_SERVICE["key"] for taint in taints)
    if node_object["metadata"]["name"] not in names or isolated_for(node_object) != incident or is_said:
        return None
    return {"spec": {"taints": [*taints, OUT_OF_SERVICE, OUT_OF_SERVICE_MARK]}}


def _opened(node_object: Object) -> dict[str, Any] | None:
    """Return the patch that takes all our marks off; None: it has none. A cordon of others stays, and a taint.

    On HyperPod its own taint and label go with our isolation.
    """
    is_ours, taints = is_cordon_ours(node_object), taints_of(node_object)
    is_hyperpods = isolated_for(node_object) is not None and is_released_with_us(node_object)
    keys = {taint.get("key") for taint in taints}
    ours = {
        *OWN_TAINTS,
        *([OUT_OF_SERVICE["key"]] if OUT_OF_SERVICE_MARK["key"] in keys else []),
        *([HEALTH] if is_hyperpods else []),
    }
    others = [taint for taint in taints if taint.get("key") not in ours]
    if len(others) == len(taints) and not is_ours:
        return None
    is_labelled = is_hyperpods and labels_of(node_object).get(HEALTH) != SCHEDULABLE
    return {
        "spec": {"taints": others, "unschedulable": None} if is_ours else {"taints": others},
        **({"metadata": {"labels": {HEALTH: SCHEDULABLE}}} if is_labelled else {}),
    }
