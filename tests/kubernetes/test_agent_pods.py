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

    assert agent_pods.machine_of(agent_on(cluster, kubelet.name)) == machine_of(kubelet)


def agent_on(cluster: Cluster, node: str) -> AgentPod:
    """The pod that the DaemonSet has made for a node."""
    selector = {"fieldSelector": f"spec.nodeName={node}"}
    cluster.wait(lambda: cluster.api.get(PODS, **selector)["items"], "the DaemonSet has made its pod")
    [made] = cluster.api.get(PODS, **selector)["items"]
    return AgentPod(eks.NAME, made["metadata"]["name"])


def register(cluster: Cluster, name: str, provider_id: str) -> str:
    """A Node without a machine behind it, as its kubelet would make it; its path."""
    room = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    body = {"metadata": {"name": name, "labels": {"nodeheal.io/pool": "demo"}}, "spec": {"providerID": provider_id}}
    cluster.create("/api/v1/nodes", {**body, "status": {"capacity": room, "allocatable": room}})
    return f"/api/v1/nodes/{name}"


def test_where_two_nodes_give_one_provider_id_neither_speaks_for_the_machine(
    cluster: Cluster, agent_pods: KubernetesAgentPods
) -> None:
    victim, forger = cluster.node(labels={"nodeheal.io/pool": "demo"}), cluster.name("node")
    path = register(cluster, forger, victim.machine.provider_id)
    pods = [agent_on(cluster, name) for name in (forger, victim.name)]

    assert [agent_pods.machine_of(pod) for pod in pods] == [None, None]
    cluster.forget(path)
    assert agent_pods.machine_of(pods[1]) == machine_of(victim)


@pytest.mark.parametrize(("name", "is_its_own"), [("hyperpod-i-0123456789abcdef0", True), ("node-of-root", False)])
def test_a_node_of_hyperpod_speaks_for_the_machine_that_its_name_has(
    cluster: Cluster, agent_pods: KubernetesAgentPods, name: str, is_its_own: bool
) -> None:
    register(cluster, name, "aws:///use1-az1/sagemaker/cluster/hyperpod-7tg6o65u86i5-i-0123456789abcdef0")

    assert agent_pods.machine_of(agent_on(cluster, name)) == ("i-0123456789abcdef0" if is_its_own else None)


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
