"""Has Karpenter end the machine of a node: its NodeClaim is deleted, by which Karpenter drains the node first.

Karpenter makes another machine only where pods are pending: often it has done so for the restarted gang already.
"""

from collections.abc import Collection

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError, KubernetesApi, Object, refusals_named
from nodeheal.adapters.kubernetes.nodes import holder_of, machine_in
from nodeheal.domain.errors import NotAccepted, NotFound, PlacementRefused
from nodeheal.domain.fleet.holder import HeldByNodeheal
from nodeheal.domain.fleet.machine import ClusterReplacement
from nodeheal.domain.fleet.node import Node

NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
# The operator's consent, in the template of a NodePool: the functions can write no label. Without it the API server
# refuses them as well.
MANAGED_LABEL = "nodeheal.io/managed"
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
_RESERVED = "reserved"


class KarpenterMachines:
    """Implements MachineMaker."""

    def __init__(self, clusters: EksClusters) -> None:
        self._clusters = clusters

    def have_replaced(self, node: Node, how: ClusterReplacement, others: Collection[str]) -> None:
        if how is not ClusterReplacement.delete_node_claim:
            raise PlacementRefused(f"replacement.by_cluster is {how}, which Kubernetes does not know")
        api = self._clusters.api(node.cluster.name)
        with refusals_named(node.node_id):
            claim, holder = _claim_of(node, api), None
            try:
                holder = holder_of(self._clusters.nodes(node.cluster.name).find(node))
            except NotFound:
                if claim is None:
                    return  # it has ended: an earlier call was not answered
            if claim is None:
                raise PlacementRefused(f"Karpenter has no NodeClaim of {node.instance_id}")
            if "deletionTimestamp" in claim["metadata"]:
                return
            if why_not := _why_not(claim):
                raise PlacementRefused(why_not)
            if holder != HeldByNodeheal(str(node.open_incident)):
                raise PlacementRefused(f"{node.node_id} is not isolated for {node.open_incident}: {holder} has it")
            _delete(claim, api)


def _claim_of(node: Node, api: KubernetesApi) -> Object | None:
    """Return the NodeClaim of the node's machine; None: Karpenter has none, or is not in the cluster."""
    try:
        claims = list(api.pages(NODE_CLAIMS))
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    machines = {machine_in(str(claim.get("status", {}).get("providerID", ""))): claim for claim in claims}
    return machines.get(node.instance_id)


def _why_not(claim: Object) -> str:
    """Return why the machine must not be ended; empty: it may be."""
    name, labels = claim["metadata"]["name"], claim["metadata"].get("labels") or {}
    if labels.get(_CAPACITY_TYPE) == _RESERVED:
        return f"the capacity of NodeClaim {name} is reserved, and the reservation may give the same host again"
    if labels.get(MANAGED_LABEL) != "true":
        return f"NodeClaim {name} lacks the label {MANAGED_LABEL}: true, which its NodePool's template gives"
    return ""


def _delete(claim: Object, api: KubernetesApi) -> None:
    name = claim["metadata"]["name"]
    try:
        api.delete(f"{NODE_CLAIMS}/{name}", claim["metadata"]["uid"])
    except ApiError as error:
        if error.status == 403:
            raise PlacementRefused(f"NodeClaim {name}: {error.message}") from error
        if error.status == 409:
            raise NotAccepted(f"NodeClaim {name} is another one now") from error
        if error.status != 404:
            raise
