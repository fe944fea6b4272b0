"""Finds the Kubernetes nodes of machines, and reads who keeps one out of service.

A node is found by its machine: the instance id at the end of `spec.providerID`, which only the kubelet's registration
sets. Names are kept as hints, and checked at each use.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from nodeheal.adapters.kubernetes.api import MANAGER, KubernetesApi, Object
from nodeheal.adapters.kubernetes.hyperpod import HEALTH, unpassed_check
from nodeheal.contract import names
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.holder import HeldByNodeheal, HeldByPerson, HeldBySystem, Holder
from nodeheal.domain.fleet.node import Node

NODES = "/api/v1/nodes"
ISOLATED_TAINT = names.KUBERNETES_TAINT
# Beside it where we have cordoned the node. A kubelet can change neither.
CORDONED_TAINT = {"key": "nodeheal.io/cordoned", "value": "true", "effect": "NoSchedule"}
# By the node group, from the registration on: a new node takes no pod before it has been diagnosed.
UNCHECKED_TAINT = "nodeheal.io/unchecked"
# Kubernetes' own, by which it forgets the deleted pods of a node without power; and ours beside it, where we set it.
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
OUT_OF_SERVICE_MARK = {"key": "nodeheal.io/out-of-service", "value": "true", "effect": "NoSchedule"}
OWN_TAINTS = (ISOLATED_TAINT, CORDONED_TAINT["key"], UNCHECKED_TAINT, OUT_OF_SERVICE_MARK["key"])
NEURON_HEALTH = "NeuronHealth"  # the condition that AWS's Neuron node-problem-detector sets on each of its nodes
_NOBODY = ("", "ancient-changes")  # as the API server merges the entries of many writers
_WORDS = 80  # of what others write into labels, annotations and managers' names
# Other systems that keep a node out of service: the label, annotation or taint by which each shows that.
_SYSTEMS_LABELS = {"k8saas.nvidia.com/cordon-by": "NVSentinel", "dgxc.nvidia.com/nvsentinel-state": "NVSentinel"}
_SYSTEMS_ANNOTATIONS = {"weave.works/kured-reboot-in-progress": "kured"}
_DRAINO = "draino.planet.com/conditions"  # written with its cordon; a person's uncordon leaves it there
_SYSTEMS_TAINTS = {"karpenter.sh/disrupted": "Karpenter", "karpenter.sh/rebooting": "Karpenter", HEALTH: "HyperPod"}


class KubernetesNodes:
    """Finds nodes in one cluster, whose name is for messages only."""

    def __init__(self, cluster: str, api: KubernetesApi) -> None:
        self._cluster, self._api = cluster, api
        self._names: dict[str, str] = {}  # by machine

    def find(self, node: Node) -> Object:
        """Return the machine's node. Raises NotFound."""
        for name in self._hints(node.instance_id):
            node_object = self._api.find(f"{NODES}/{name}")
            if node_object is not None and machine_of(node_object) == node.instance_id:
                self._names[node.instance_id] = name
                return node_object
        for node_object in self._api.pages(NODES):
            self._names[machine_of(node_object)] = node_object["metadata"]["name"]
            if machine_of(node_object) == node.instance_id:
                return node_object
        raise NotFound(f"{node.instance_id} is no node of Kubernetes cluster {self._cluster}")

    def _hints(self, machine: str) -> Iterator[str]:
        """Yield names under which the machine may be, the likeliest first."""
        if machine in self._names:
            yield self._names[machine]
        elif machine.startswith("mi-"):
            yield machine  # EKS hybrid nodes are named so
        elif machine.startswith("i-"):
            yield f"hyperpod-{machine}"


def machine_of(node_object: Object) -> str:
    """Return the id of a node's machine; empty: it has none yet."""
    return machine_in(str(node_object.get("spec", {}).get("providerID", "")))


def machine_in(provider_id: str) -> str:
    """Return the id of the machine that a provider id ends with."""
    _, _, last = provider_id.rpartition("/")
    instance = last.rpartition("-i-")[2]  # HyperPod: hyperpod-CLUSTER-i-0123456789abcdef0
    return f"i-{instance}" if instance != last else last


def condition_of(node_object: Object, kind: str) -> Object | None:
    """Return a node's condition; None: it has none of this type."""
    conditions = node_object.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), None)


def taints_of(node_object: Object) -> list[dict[str, Any]]:
    """Return a node's taints, as the API has them."""
    return list(node_object.get("spec", {}).get("taints") or ())


def isolated_for(node_object: Object) -> str | None:
    """Return the incident in our taint; None: there is none."""
    return next(
        (str(taint.get("value", "")) for taint in taints_of(node_object) if taint.get("key") == ISOLATED_TAINT), None
    )


def is_cordoned(node_object: Object) -> bool:
    """Whether the node takes no new pods."""
    return bool(node_object.get("spec", {}).get("unschedulable"))


def is_in_service(node_object: Object) -> bool:
    """Whether neither a cordon nor a check of the node keeps pods off: of a new one, or HyperPod's.

    Our isolation is the taint and a cordon: where a person takes the cordon off, that shows here.
    """
    is_checked = all(taint.get("key") != UNCHECKED_TAINT for taint in taints_of(node_object))
    return is_checked and not is_cordoned(node_object) and not unpassed_check(node_object)


def holder_of(node_object: Object) -> Holder | None:
    """Return who keeps the node out of service; None: nobody does."""
    incident = isolated_for(node_object)
    if incident is not None:
        return HeldByNodeheal(incident)
    if any(taint.get("key") == UNCHECKED_TAINT for taint in taints_of(node_object)):
        return HeldBySystem("nodeheal", "a new node, which has not been diagnosed yet")
    if check := unpassed_check(node_object):
        return HeldBySystem("HyperPod", check)
    for place, known in (("labels", _SYSTEMS_LABELS), ("annotations", _SYSTEMS_ANNOTATIONS)):
        values: Mapping[str, Any] = node_object["metadata"].get(place) or {}
        for key in known.keys() & values.keys():
            return HeldBySystem(known[key], f"{key}={values[key]}"[:_WORDS])
    for taint in taints_of(node_object):
        if taint.get("key") in _SYSTEMS_TAINTS:
            return HeldBySystem(_SYSTEMS_TAINTS[taint["key"]], f"taint {taint['key']}")
    if not is_cordoned(node_object):
        return None
    if is_cordon_ours(node_object):
        return HeldByNodeheal("")
    conditions = (node_object["metadata"].get("annotations") or {}).get(_DRAINO)
    if conditions is not None:
        return HeldBySystem("draino", f"{_DRAINO}={conditions}"[:_WORDS])
    return HeldByPerson(_cordoned_by(node_object)[:_WORDS] or "somebody", how="cordoned")


def is_cordon_ours(node_object: Object) -> bool:
    """Whether nodeheal has cordoned the node, and nobody else since: our mark stands, and no other writer of the cordon
    is known.
    """
    return (
        has_cordon_mark(node_object) and is_cordoned(node_object) and _cordoned_by(node_object) in (MANAGER, *_NOBODY)
    )


def has_cordon_mark(node_object: Object) -> bool:
    """Whether nodeheal has cordoned the node at some time; a person may have taken that off, or cordoned it again."""
    return any(taint.get("key") == CORDONED_TAINT["key"] for taint in taints_of(node_object))


def _cordoned_by(node_object: Object) -> str:
    """Return the program that wrote the cordon, others' before ours, empty where none is known: the API does not say
    which person used it, and anyone may choose its name.
    """
    writers = [
        str(entry.get("manager", ""))
        for entry in reversed(node_object["metadata"].get("managedFields") or ())
        if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return min(writers, key=lambda writer: writer in (MANAGER, *_NOBODY), default="")
