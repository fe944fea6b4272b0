"""The agent's pod learns from its Node object which machine it is, follows it, and can write nothing."""

import tomllib
from pathlib import Path

import pytest

from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.kubernetes_node import CHECK
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands.node_config import configured
from nodeheal.agent.kubernetes.own_node import ENV_FOLDER, ENV_NODE, NodeObjectError, OwnNode
from nodeheal.agent.runtime import config as configuration
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider
from sandbox.kubernetes.eks import agent_config
from sandbox.kubernetes.kubelet import Kubelet
from sandbox.toml import toml
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster
from tests.support.agent_fakes import CONFIG

ACCOUNT = "nodeheal-agent"


@pytest.fixture
def kubelet(cluster: Cluster) -> Kubelet:
    return cluster.node(labels={names.KUBERNETES_POOL_LABEL: "h100"})


def own_node(cluster: Cluster, kubelet: Kubelet, folder: Path) -> OwnNode:
    """The node as the agent's pod there reads it."""
    folder.mkdir(exist_ok=True)
    (folder / "ca.crt").write_bytes(cluster.plane.authority.files.certificate.read_bytes())
    (folder / "token").write_text(cluster.plane.token(ACCOUNT, names.KUBERNETES_NAMESPACE))
    variables = kubelet.api.variables()
    return OwnNode(
        kubelet.name, variables["KUBERNETES_SERVICE_HOST"], int(variables["KUBERNETES_SERVICE_PORT"]), folder
    )


def test_the_configuration_names_the_machine_and_the_pool_of_the_node(
    cluster: Cluster, kubelet: Kubelet, tmp_path: Path
) -> None:
    common = toml(agent_config(eks.NAME, "http://127.0.0.1:9", 2, ["disk"]))

    config = configuration.parse(tomllib.loads(configured(common, own_node(cluster, kubelet, tmp_path).read())))

    machine = kubelet.machine.provider_id.rpartition("/")[2]
    assert (config.node_id, config.provider, config.pool) == (machine, Provider.ec2, "h100")


def test_the_agent_learns_of_a_cordon_by_a_watch(cluster: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    node = own_node(cluster, kubelet, tmp_path)
    version = node.read()["metadata"]["resourceVersion"]
    cluster.plane.kubectl("cordon", kubelet.name)

    cordoned = next(found for found in node.changes(version, 10) if found["spec"].get("unschedulable"))

    assert cordoned["metadata"]["name"] == kubelet.name


def test_a_watch_that_is_refused_is_no_answer(cluster: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    with pytest.raises(NodeObjectError):
        list(own_node(cluster, kubelet, tmp_path).changes("none", 1))


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
@pytest.mark.parametrize("resource", ["nodes", "nodes/status", "pods", "jobs.batch", "events", "configmaps"])
def test_the_agent_may_write_nothing(cluster: Cluster, verb: str, resource: str) -> None:
    who = f"--as=system:serviceaccount:{names.KUBERNETES_NAMESPACE}:{ACCOUNT}"
    resource, _, subresource = resource.partition("/")
    what = [resource, *([f"--subresource={subresource}"] if subresource else [])]

    answers = cluster.can_i(verb, *what, who, f"--namespace={names.KUBERNETES_NAMESPACE}")

    assert answers == "no"


def test_the_check_reports_an_uncordon_under_our_taint_within_seconds(
    cluster: Cluster, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_node(cluster, kubelet, tmp_path)
    variables = {**kubelet.api.variables(), ENV_FOLDER: str(tmp_path), ENV_NODE: kubelet.name}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    cluster.plane.kubectl("cordon", kubelet.name)
    cluster.plane.kubectl("taint", "node", kubelet.name, f"{names.KUBERNETES_TAINT}=inc:NoSchedule")
    assert CHECK.stream is not None
    results = CHECK.stream(CheckContext(CONFIG, run_tool), {})

    isolated = next(results)
    cluster.plane.kubectl("uncordon", kubelet.name)
    undone = next(result for result in results if result.problems)

    assert (isolated.problems, isolated.unclear) == ((), "")
    assert [problem.finding.code for problem in undone.problems] == ["isolation_undone"]
