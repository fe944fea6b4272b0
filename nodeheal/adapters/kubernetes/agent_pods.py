"""Reads which machine a pod of the agent runs on, which no node can choose for a pod of the DaemonSet."""

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import KubernetesApi, Object, refusals_named
from nodeheal.adapters.kubernetes.gangs import controller_of
from nodeheal.adapters.kubernetes.hyperpod import is_on_hyperpod
from nodeheal.adapters.kubernetes.nodes import NODES, machine_of
from nodeheal.contract import names
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.domain.errors import NotAccepted, NotFound


class KubernetesAgentPods:
    """Implements AgentPods."""

    def __init__(self, clusters: EksClusters) -> None:
        self._clusters = clusters

    def machine_of(self, pod: AgentPod) -> str | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return self._machine_of(pod)
        except (BotoCoreError, ClientError, NotFound) as error:  # one that the settings do not name any more, or none
            raise NotAccepted(f"cluster {pod.cluster}: {error}") from error

    def _machine_of(self, pod: AgentPod) -> str | None:
        api = self._clusters.api(pod.cluster)
        with refusals_named(f"pod {pod.name} of cluster {pod.cluster}"):
            known = api.find(f"/api/v1/namespaces/{names.KUBERNETES_NAMESPACE}/pods/{pod.name}")
            if known is None or "deletionTimestamp" in known["metadata"]:
                return None
            owner = controller_of(known) or {}
            if (owner.get("kind"), owner.get("name")) != ("DaemonSet", names.KUBERNETES_AGENT):
                return None
            node = api.find(f"{NODES}/{known['spec'].get('nodeName') or '-'}")
            machine = machine_of(node) if node is not None else ""
            return machine if node is not None and machine and _is_its_own(node, machine, api) else None


def _is_its_own(node: Object, machine: str, api: KubernetesApi) -> bool:
    """Whether no other node has the machine: a kubelet gives the provider id where it makes its Node, and might give
    another one's. On HyperPod the node's name, which its credentials prove, is made of it.
    """
    if is_on_hyperpod(node):
        return bool(node["metadata"]["name"] == f"hyperpod-{machine}")
    return sum(machine_of(each) == machine for each in api.pages(NODES)) == 1
