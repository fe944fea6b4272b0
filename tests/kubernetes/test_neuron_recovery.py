"""Where the cluster itself replaces nodes, nodeheal keeps off them: read from the real API server."""

from typing import Any

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.conditions import KubernetesConditions
from nodeheal.adapters.kubernetes.neuron_recovery import NAME, NAMESPACE
from nodeheal.domain.fleet.machine import Remediator
from nodeheal.domain.fleet.node import Node
from sandbox.kubernetes.api import STRATEGIC_MERGE
from sandbox.kubernetes.api import ApiError as Refused
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster
from tests.support.builders import FrozenClock

DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
HEALTHY = {"type": "NeuronHealth", "status": "False", "reason": "NeuronHasNoError", "message": "Neuron has no error"}


@pytest.fixture
def detector(cluster: Cluster) -> None:
    """The namespace of AWS's chart; it lives as long as the control plane."""
    try:
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    except Refused as error:
        assert error.status == 409


def daemon_set(name: str, recovery: str) -> dict[str, Any]:
    """As AWS's chart has it, without its volumes. It is bound to no node here."""
    labels = {"app": name}
    containers = [
        {"name": "node-problem-detector", "image": "none"},
        {"name": "node-recovery", "image": "none", "env": [{"name": "ENABLE_RECOVERY", "value": recovery}]},
    ]
    pod = {"containers": containers, "nodeSelector": {"example.com/none": "there"}}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def node_of(cluster: Cluster, *, is_watched: bool) -> Node:
    kubelet = cluster.node()
    if is_watched:
        status = {"status": {"conditions": [HEALTHY]}}
        cluster.api.patch(f"/api/v1/nodes/{kubelet.name}/status", status, STRATEGIC_MERGE)
    return eks.record(kubelet.machine.provider_id.rpartition("/")[2])


@pytest.mark.parametrize(
    ("recovery", "is_watched", "found"),
    [
        ("true", True, Remediator.neuron_node_recovery),
        ("false", True, None),
        ("true", False, None),
    ],
)
def test_the_recovery_of_the_neuron_chart_owns_the_nodes_that_it_watches(
    cluster: Cluster, clusters: EksClusters, detector: None, recovery: str, is_watched: bool, found: Remediator | None
) -> None:
    node = node_of(cluster, is_watched=is_watched)
    cluster.create(DAEMON_SETS, daemon_set(NAME, recovery))

    owner, detail = KubernetesConditions(clusters, FrozenClock()).remediator_of(node)

    cluster.forget(f"{DAEMON_SETS}/{NAME}")
    told = "DaemonSet node-problem-detector in neuron-healthcheck-system has ENABLE_RECOVERY=true"
    assert (owner, detail) == (found, told if found else "")


def test_without_its_daemon_set_nobody_else_repairs(cluster: Cluster, clusters: EksClusters, detector: None) -> None:
    conditions = KubernetesConditions(clusters, FrozenClock())

    owners = [conditions.remediator_of(node_of(cluster, is_watched=True))]
    owners.append(conditions.remediator_of(eks.record("i-0fffffffffffffff0")))

    assert owners == [(None, "")] * 2


def test_the_group_reads_this_one_daemon_set_and_no_other(clusters: EksClusters, cluster: Cluster) -> None:
    functions = clusters.api(eks.NAME)

    assert functions.find(f"/apis/apps/v1/namespaces/kube-system/daemonsets/{NAME}") is None
    with pytest.raises(ApiError) as refused:
        functions.find("/apis/apps/v1/namespaces/kube-system/daemonsets/aws-node")
    assert refused.value.status == 403
