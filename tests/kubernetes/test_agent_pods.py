"""The machine of an agent's pod, as the API server has it."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.agent_pods import KubernetesAgentPods
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.domain.errors import NotAccepted
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster, shell

PODS = "/api/v1/namespaces/nodeheal/pods"


@pytest.fixture
def agent_pods(clusters: EksClusters) -> KubernetesAgentPods:
    return KubernetesAgentPods(clusters)


def machine_of(kubelet: Kubelet) -> str:
    return kubelet.machine.provider_id.rpartition("/")[2]


def create_pod(cluster: Cluster, node: str, **metadata: Any) -> AgentPod:
    name = cluster.name("nodeheal-agent")
    spec = {"nodeName": node, "containers": [shell("sleep 60")], "tolerations": [{"operator": "Exists"}]}
    cluster.create(PODS, {"metadata": {"name": name, **metadata}, "spec": spec})
    return AgentPod(eks.NAME, name)


def owned_by(cluster: Cluster, name: str) -> dict[str, Any]:
    """The owner of a pod, as a DaemonSet's controller writes it; `name` may be another DaemonSet's."""
    agent = cluster.api.get("/apis/apps/v1/namespaces/nodeheal/daemonsets/nodeheal-agent")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": agent["metadata"]["uid"]}
    return {"ownerReferences": [{**owner, "controller": True}]}


def test_a_pod_that_the_daemon_set_has_made_is_on_the_machine_of_its_node(
    cluster: Cluster, agent_pods: KubernetesAgentPods
) -> None:
    kubelet = cluster.node(labels={"nodeheal.io/pool": "demo"})
    selector = {"fieldSelector": f"spec.nodeName={kubelet.name}"}
    cluster.wait(lambda: cluster.api.get(PODS, **selector)["items"], "the DaemonSet has made its pod")
    [made] = cluster.api.get(PODS, **selector)["items"]

    assert agent_pods.machine_of(AgentPod(eks.NAME, made["metadata"]["name"])) == machine_of(kubelet)


def test_a_pod_that_somebody_else_has_made_is_no_agent(cluster: Cluster, agent_pods: KubernetesAgentPods) -> None:
    kubelet = cluster.node()

    assert agent_pods.machine_of(create_pod(cluster, kubelet.name)) is None
    assert agent_pods.machine_of(create_pod(cluster, kubelet.name, **owned_by(cluster, "another"))) is None


def test_a_pod_that_is_not_there_is_no_agent(cluster: Cluster, agent_pods: KubernetesAgentPods) -> None:
    assert agent_pods.machine_of(AgentPod(eks.NAME, "nodeheal-agent-none")) is None


def test_a_pod_of_a_node_that_is_gone_is_on_no_machine(cluster: Cluster, agent_pods: KubernetesAgentPods) -> None:
    pod = create_pod(cluster, "no-such-node", **owned_by(cluster, "nodeheal-agent"))

    assert agent_pods.machine_of(pod) is None


def test_a_cluster_that_cannot_be_found_is_no_answer() -> None:
    def make(service: str) -> Any:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DescribeCluster")

    with pytest.raises(NotAccepted, match=r"cluster gone: .*AccessDenied"):
        KubernetesAgentPods(EksClusters(make)).machine_of(AgentPod("gone", "nodeheal-agent-x7k2p"))
