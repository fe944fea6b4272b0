"""A broken accelerator is a condition of its node, beside those of others, and nothing else of the node is changed."""

import json
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.conditions import KubernetesConditions
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from sandbox.kubernetes.api import STRATEGIC_MERGE
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster
from tests.support.builders import NOW, FrozenClock

OURS, SRAM = "nodeheal.io/Accelerator", "NeuronHasError_SRAM_UNCORRECTABLE_ERROR"
HEALTHY = {"type": "NeuronHealth", "status": "False", "reason": "NeuronHasNoError", "message": "Neuron has no error"}


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def conditions(clusters: EksClusters, clock: FrozenClock) -> KubernetesConditions:
    return KubernetesConditions(clusters, clock)


def record_of(kubelet: Kubelet) -> Node:
    return eks.record(kubelet.machine.provider_id.rpartition("/")[2])


def read(cluster: Cluster, kubelet: Kubelet) -> dict[str, Any]:
    return dict(cluster.api.get(f"/api/v1/nodes/{kubelet.name}"))


def condition(cluster: Cluster, kubelet: Kubelet) -> dict[str, Any]:
    found = [each for each in read(cluster, kubelet)["status"]["conditions"] if each["type"] == OURS]
    assert len(found) <= 1
    return dict(found[0]) if found else {}


def test_a_fault_is_shown_with_its_times_beside_the_conditions_of_the_kubelet(
    cluster: Cluster, conditions: KubernetesConditions
) -> None:
    kubelet = cluster.node()
    before = {each["type"] for each in read(cluster, kubelet)["status"]["conditions"]}

    conditions.show(record_of(kubelet), SRAM, "On-chip memory of neuron0, inc-1")

    assert condition(cluster, kubelet) == {
        "type": OURS,
        "status": "True",
        "reason": SRAM,
        "message": "On-chip memory of neuron0, inc-1",
        "lastTransitionTime": f"{NOW:%Y-%m-%dT%H:%M:%SZ}",
        "lastHeartbeatTime": f"{NOW:%Y-%m-%dT%H:%M:%SZ}",
    }
    assert {each["type"] for each in read(cluster, kubelet)["status"]["conditions"]} == before | {OURS}


def test_a_repeat_writes_nothing_and_another_fault_keeps_the_time_of_the_first(
    cluster: Cluster, conditions: KubernetesConditions, clock: FrozenClock
) -> None:
    kubelet = cluster.node()
    node = record_of(kubelet)
    conditions.show(node, SRAM, "the first")
    first = condition(cluster, kubelet)
    clock.advance(60)

    conditions.show(node, SRAM, "the first")
    again = condition(cluster, kubelet)
    conditions.show(node, "Xid79", "another")

    later = f"{NOW + timedelta(seconds=60):%Y-%m-%dT%H:%M:%SZ}"
    assert again == first
    assert condition(cluster, kubelet) == {
        **first,
        "reason": "Xid79",
        "message": "another",
        "lastHeartbeatTime": later,
    }


def test_a_node_that_is_given_back_shows_no_error_and_one_without_a_fault_shows_nothing(
    cluster: Cluster, conditions: KubernetesConditions, clock: FrozenClock
) -> None:
    broken, well = cluster.node(), cluster.node()
    conditions.show(record_of(broken), SRAM, "the first")
    clock.advance(60)

    for kubelet in (broken, broken, well):
        conditions.clear(record_of(kubelet))

    ended = condition(cluster, broken)
    assert (ended["status"], ended["reason"]) == ("False", "NoError")
    assert ended["lastTransitionTime"] == f"{NOW + timedelta(seconds=60):%Y-%m-%dT%H:%M:%SZ}"
    assert condition(cluster, well) == {}


def test_beside_node_problem_detectors_condition_nothing_is_written(
    cluster: Cluster, conditions: KubernetesConditions
) -> None:
    kubelet = cluster.node()
    status = {"status": {"conditions": [HEALTHY]}}
    cluster.api.patch(f"/api/v1/nodes/{kubelet.name}/status", status, STRATEGIC_MERGE)

    conditions.show(record_of(kubelet), SRAM, "the first")

    assert condition(cluster, kubelet) == {}


def test_a_node_that_is_gone_is_named(conditions: KubernetesConditions) -> None:
    with pytest.raises(NotFound, match="i-0fffffffffffffff0 is no node of Kubernetes cluster training"):
        conditions.show(eks.record("i-0fffffffffffffff0"), SRAM, "the first")


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"conditions": [{**HEALTHY, "status": "True"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"status": {"conditions": [{"type": "AcceleratedHardwareReady", "status": "False"}]}},
        {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}},
        {"status": {"capacity": {"aws.amazon.com/neuron": "0"}}},
        {"status": {"allocatable": {"cpu": "0"}}},
        {"status": {"nodeInfo": {"bootID": "another"}}},
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}},
        {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}},
        {"status": {"volumesInUse": ["a"]}},
        {"metadata": {"labels": {"sagemaker.amazonaws.com/node-health-status": "Unschedulable"}}},
        {"metadata": {"annotations": {"nodeheal.io/any": "mine"}}},
        {"metadata": {"finalizers": ["nodeheal.io/stay"]}},
    ],
    ids=json.dumps,
)
def test_through_the_status_the_group_changes_nothing_but_its_own_conditions(
    cluster: Cluster, clusters: EksClusters, change: dict[str, Any]
) -> None:
    path = f"/api/v1/nodes/{cluster.node().name}/status"
    ours = {"type": OURS, "status": "True", "reason": SRAM}
    status = change.get("status", {})
    both = {**change, "status": {**status, "conditions": [*status.get("conditions", ()), ours]}}

    for body in (change, both):
        with pytest.raises(ApiError) as refused:
            clusters.api(eks.NAME)._call("PATCH", path, body, STRATEGIC_MERGE)
        assert (refused.value.status, "nodeheal changes" in refused.value.message) == (403, True)


def test_a_taint_sent_to_the_status_is_not_taken_over(cluster: Cluster, clusters: EksClusters) -> None:
    kubelet = cluster.node()
    ours = {"type": OURS, "status": "True", "reason": SRAM}
    spec = {"unschedulable": True, "taints": [{"key": "example.com/any", "effect": "NoExecute"}]}

    clusters.api(eks.NAME)._call(
        "PATCH",
        f"/api/v1/nodes/{kubelet.name}/status",
        {"spec": spec, "status": {"conditions": [ours]}},
        STRATEGIC_MERGE,
    )

    found = read(cluster, kubelet)["spec"]
    assert (found.get("unschedulable"), "example.com/any" in str(found)) == (None, False)
