"""Shows a broken accelerator as a condition of its node, in the form of node-problem-detector: True is bad.

AWS's Neuron node-problem-detector has a condition of its own. Where it stands on the node, it says the same, and
nothing is written beside it.
"""

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import Object, refusals_named
from nodeheal.adapters.kubernetes.neuron_recovery import NAME, NAMESPACE, SWITCH, is_recovery_on
from nodeheal.adapters.kubernetes.nodes import NEURON_HEALTH, NODES, condition_of
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.machine import Remediator
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.clock import Clock

ACCELERATOR = "nodeheal.io/Accelerator"
NO_ERROR = "NoError"


class KubernetesConditions:
    """Implements NodeConditions."""

    def __init__(self, clusters: EksClusters, clock: Clock) -> None:
        self._clusters, self._clock = clusters, clock

    def show(self, node: Node, reason: str, message: str) -> None:
        node_object = self._find(node)
        if condition_of(node_object, NEURON_HEALTH) is None:
            self._write(node, node_object, "True", reason, message)

    def clear(self, node: Node) -> None:
        node_object = self._find(node)
        if condition_of(node_object, ACCELERATOR) is not None:
            self._write(node, node_object, "False", NO_ERROR, "nodeheal has given the node back")

    def remediator_of(self, node: Node) -> tuple[Remediator | None, str]:
        cluster = node.cluster.name
        try:
            is_watched = condition_of(self._find(node), NEURON_HEALTH) is not None  # it takes certain types only
        except NotFound:
            return None, ""
        with refusals_named(node.node_id):
            if not is_watched or not is_recovery_on(self._clusters.api(cluster)):
                return None, ""
        return Remediator.neuron_node_recovery, f"DaemonSet {NAME} in {NAMESPACE} has {SWITCH}=true"

    def _find(self, node: Node) -> Object:
        with refusals_named(node.node_id):
            return self._clusters.nodes(node.cluster.name).find(node)

    def _write(self, node: Node, node_object: Object, status: str, reason: str, message: str) -> None:
        """Write the condition, if it is another one. The server dates nothing: left out, the old times would stay."""
        before = condition_of(node_object, ACCELERATOR) or {}
        wanted = {"type": ACCELERATOR, "status": status, "reason": reason, "message": message}
        if {**before, **wanted} == before:
            return
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        since = before["lastTransitionTime"] if before.get("status") == status else now
        written = {**wanted, "lastTransitionTime": since, "lastHeartbeatTime": now}
        with refusals_named(node.node_id):
            self._clusters.api(node.cluster.name).patch_status(
                f"{NODES}/{node_object['metadata']['name']}", {"conditions": [written]}
            )
