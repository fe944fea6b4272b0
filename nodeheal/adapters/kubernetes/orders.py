"""Reads what people order by HyperPod's label on a node. What HyperPod's agent says there names a fault, too."""

from collections.abc import Sequence

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError, KubernetesApi, refusals_named
from nodeheal.adapters.kubernetes.hyperpod import FAULT_TYPES, HEALTH, PENDING, is_on_hyperpod, labels_of
from nodeheal.adapters.kubernetes.nodes import NODES, machine_of
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node_order import NodeOrder

POLICY = "nodeheal-hyperpod-orders"  # of the chart: it limits who sets the label
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_SELECTOR = f"{HEALTH} in ({','.join(PENDING)}),!{FAULT_TYPES}"


class KubernetesOrders:
    """Implements NodeOrders."""

    def __init__(self, clusters: EksClusters) -> None:
        self._clusters = clusters

    def pending(self, cluster: Cluster) -> Sequence[NodeOrder]:
        from botocore.exceptions import BotoCoreError, ClientError

        api = self._clusters.api(cluster.name)
        try:
            with refusals_named(f"nodes of cluster {cluster.name}"):
                nodes = [node for node in api.pages(NODES, labelSelector=_SELECTOR) if is_on_hyperpod(node)]
        except (BotoCoreError, ClientError) as error:  # a cluster that the settings do not name, for one
            raise NotAccepted(f"cluster {cluster.name}: {error}") from error
        is_limited = bool(nodes) and self.is_limited(cluster)
        who = f"somebody who may {'label' if is_limited else 'write'} nodes of cluster {cluster.name}"
        return [
            NodeOrder(machine_of(node), PENDING[value], who, f"{HEALTH}={value}", is_limited)
            for node in nodes
            if (value := labels_of(node)[HEALTH]) in PENDING
        ]

    def is_limited(self, cluster: Cluster) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return _is_limited(self._clusters.api(cluster.name))
        except (BotoCoreError, ClientError) as error:
            raise NotAccepted(f"cluster {cluster.name}: {error}") from error


def _is_limited(api: KubernetesApi) -> bool:
    """Whether the chart's policy is in force, on all nodes: nobody but a group of people orders by the label."""
    try:
        policy = api.find(f"{_ADMISSION}/validatingadmissionpolicies/{POLICY}")
        binding = api.find(f"{_ADMISSION}/validatingadmissionpolicybindings/{POLICY}")
    except ApiError:  # a chart of before does not let us look
        return False
    if policy is None or binding is None:
        return False
    bound = binding["spec"]
    is_whole = not bound.get("matchResources") and "Deny" in bound.get("validationActions", ())
    return is_whole and bound.get("policyName") == POLICY and policy["spec"].get("failurePolicy") == "Fail"
