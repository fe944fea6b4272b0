"""On HyperPod's nodes its own words are read, and its label and taint follow nodeheal's isolation and no more."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.gate import KubernetesGate
from nodeheal.adapters.kubernetes.hyperpod import DEEP_CHECK, HEALTH
from nodeheal.adapters.kubernetes.node_words import KubernetesNodeWords, NodeWords
from nodeheal.adapters.kubernetes.nodes import ISOLATED_TAINT, machine_in
from nodeheal.domain.fleet.holder import HeldByNodeheal, HeldBySystem
from nodeheal.domain.fleet.node import Node
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster
from tests.support.hyperpod import PLACE

INCIDENT = "inc-20261129T030000-i-0a1b2c3d4e5f60718-1e531b3728"
TAINT = {"key": HEALTH, "value": "Unschedulable", "effect": "NoSchedule"}
ISOLATED = {"key": ISOLATED_TAINT, "value": INCIDENT, "effect": "NoSchedule"}


@pytest.fixture
def gate(clusters: EksClusters) -> KubernetesGate:
    return KubernetesGate(clusters)


def on_hyperpod(cluster: Cluster, *taints: dict[str, str], **labels: str) -> Kubelet:
    """A node of a HyperPod cluster, with HyperPod's labels by their last words."""
    return cluster.node(*taints, labels=named(labels), place=PLACE)


def named(labels: Mapping[str, str | None]) -> dict[str, Any]:
    """HyperPod's labels by their last words."""
    return {f"sagemaker.amazonaws.com/{word.replace('_', '-')}": value for word, value in labels.items()}


def record_of(kubelet: Kubelet) -> Node:
    """nodeheal's record of the node."""
    return eks.record(machine_in(kubelet.machine.provider_id), open_incident=INCIDENT)


def health(cluster: Cluster, kubelet: Kubelet) -> tuple[str | None, bool]:
    """The label, and whether HyperPod's taint is there."""
    found = cluster.api.get(f"/api/v1/nodes/{kubelet.name}")
    return found["metadata"]["labels"].get(HEALTH), HEALTH in {key for key, _ in cluster.taints(kubelet.name)}


def drain(gate: KubernetesGate, node: Node) -> None:
    gate.drain_all([node], [node.node_id])


@pytest.mark.parametrize(
    ("before", "isolated"),
    [
        (None, "Unschedulable"),
        ("Schedulable", "Unschedulable"),
        ("UnschedulablePendingReboot", "UnschedulablePendingReboot"),
        ("UnschedulablePendingReplacement", "UnschedulablePendingReplacement"),
    ],
)
def test_the_label_says_what_the_isolation_is_and_hyperpods_taint_goes_with_it(
    cluster: Cluster, gate: KubernetesGate, before: str | None, isolated: str
) -> None:
    kubelet = on_hyperpod(cluster, TAINT)
    ada = cluster.plane.api_of("ada", ["system:masters", "nodeheal:operators"])
    ada.patch(f"/api/v1/nodes/{kubelet.name}", {"metadata": {"labels": {HEALTH: before}}})
    node = record_of(kubelet)

    drain(gate, node)
    meanwhile = health(cluster, kubelet)
    kept = gate.undrain(node, gate.placement_of(node))

    assert (meanwhile, health(cluster, kubelet), kept) == ((isolated, True), ("Schedulable", False), None)


def test_of_a_node_that_is_not_hyperpods_neither_label_nor_taint_is_touched(
    cluster: Cluster, gate: KubernetesGate
) -> None:
    kubelet = cluster.node(TAINT)
    node = record_of(kubelet)

    drain(gate, node)
    meanwhile = health(cluster, kubelet)
    kept = gate.undrain(node, gate.placement_of(node))

    assert (meanwhile, health(cluster, kubelet)) == ((None, True), (None, True))
    assert kept == HeldBySystem("HyperPod", f"taint {HEALTH}")


@pytest.mark.parametrize("status", ["InProgress", "Failed"])
def test_a_node_whose_deep_health_check_has_not_passed_is_hyperpods_until_it_has(
    cluster: Cluster, gate: KubernetesGate, status: str
) -> None:
    kubelet = on_hyperpod(cluster, TAINT, deep_health_check_status=status, node_health_status="Unschedulable")
    node = record_of(kubelet)
    before = gate.placement_of(node)

    drain(gate, node)
    ours = gate.placement_of(node).held_by
    kept = gate.undrain(node, gate.placement_of(node))
    left = health(cluster, kubelet)
    passed = {**_labels(deep_health_check_status="Passed", node_health_status="Schedulable"), "spec": {"taints": []}}
    cluster.api.patch(f"/api/v1/nodes/{kubelet.name}", passed)

    theirs = HeldBySystem("HyperPod", f"{DEEP_CHECK}={status}")
    assert (before.is_schedulable, before.held_by, ours, kept) == (False, theirs, HeldByNodeheal(INCIDENT), theirs)
    assert left == ("Unschedulable", True)
    assert (gate.placement_of(node).is_schedulable, gate.placement_of(node).held_by) == (True, None)


def _labels(**labels: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": named(labels)}}


@pytest.mark.parametrize(
    ("taints", "change"),
    [
        ([TAINT], _labels(node_health_status="Unschedulable")),
        ([TAINT], _labels(node_health_status="Schedulable")),
        ([TAINT], {"spec": {"taints": []}}),
        ([TAINT], {"spec": {"taints": [ISOLATED]}, **_labels(node_health_status="Unschedulable")}),
        ([TAINT, ISOLATED], _labels(node_health_status="Schedulable")),
        ([TAINT, ISOLATED], _labels(node_health_status="UnschedulablePendingReplacement")),
        ([TAINT, ISOLATED], _labels(node_health_status="UnschedulablePendingReboot")),
        ([TAINT, ISOLATED], _labels(fault_types="Any", node_health_status="Unschedulable")),
        ([TAINT, ISOLATED], _labels(instance_group_name=None)),
        ([TAINT, ISOLATED], _labels(instance_group_name="other")),
        ([TAINT, ISOLATED], {"spec": {"taints": [ISOLATED]}}),
        ([TAINT, ISOLATED], {"spec": {"taints": [ISOLATED, {**TAINT, "value": "other"}]}}),
        ([ISOLATED], {"spec": {"taints": [TAINT]}}),
    ],
    ids=json.dumps,
)
def test_the_functions_change_hyperpods_marks_with_their_isolation_only(
    cluster: Cluster, clusters: EksClusters, taints: list[dict[str, str]], change: dict[str, Any]
) -> None:
    kubelet = on_hyperpod(cluster, instance_group_name="workers", fault_types="NvidiaErrorReboot")
    path = f"/api/v1/nodes/{kubelet.name}"
    cluster.api.patch(path, {"spec": {"taints": taints}})

    with pytest.raises(ApiError) as refused:
        clusters.api(eks.NAME).patch(path, change)

    assert (refused.value.status, "nodeheal changes" in refused.value.message) == (403, True)


@pytest.mark.parametrize("word", ["Reboot", "Replacement"])
def test_the_functions_take_no_stricter_word_back_while_the_node_is_isolated(
    cluster: Cluster, clusters: EksClusters, word: str
) -> None:
    kubelet = on_hyperpod(cluster, fault_types="NvidiaErrorReboot", node_health_status=f"UnschedulablePending{word}")
    functions, path = clusters.api(eks.NAME), f"/api/v1/nodes/{kubelet.name}"
    functions.patch(path, {"spec": {"taints": [ISOLATED]}})

    with pytest.raises(ApiError) as refused:
        functions.patch(path, _labels(node_health_status="Unschedulable"))

    assert (refused.value.status, "nodeheal changes" in refused.value.message) == (403, True)


@pytest.mark.parametrize("status", ["InProgress", "Failed"])
def test_the_functions_leave_the_marks_of_a_deep_health_check(
    cluster: Cluster, clusters: EksClusters, status: str
) -> None:
    path = f"/api/v1/nodes/{on_hyperpod(cluster, TAINT, deep_health_check_status=status).name}"
    functions = clusters.api(eks.NAME)
    functions.patch(path, {"spec": {"taints": [TAINT, ISOLATED]}, **_labels(node_health_status="Unschedulable")})

    changes: list[dict[str, Any]] = [
        {"spec": {"taints": []}},
        {"spec": {"taints": [TAINT]}, **_labels(node_health_status="Schedulable")},
    ]
    for change in changes:
        with pytest.raises(ApiError) as refused:
            functions.patch(path, change)
        assert refused.value.status == 403


def test_the_functions_change_no_label_of_a_node_that_is_not_hyperpods(cluster: Cluster, clusters: EksClusters) -> None:
    functions = clusters.api(eks.NAME)
    for place in ("us-east-1a/", "use1-az2/sagemaker/cluster/hyperpod-x/", "a/hyperpod-4f0ymp2iq1vn-"):
        path = f"/api/v1/nodes/{cluster.node(place=place).name}"
        with pytest.raises(ApiError) as refused:
            functions.patch(path, {"spec": {"taints": [ISOLATED]}, **_labels(node_health_status="Unschedulable")})
        assert refused.value.status == 403


def test_hyperpods_words_are_read_and_cut_to_what_fits(cluster: Cluster, clusters: EksClusters) -> None:
    said = {"node_health_status": "Unschedulable", "deep_health_check_status": "Failed"}
    kubelet = on_hyperpod(cluster, **said, fault_types="NvidiaErrorTerminate", fault_reasons="Xid74")
    details = {"sagemaker.amazonaws.com/fault-details": "x" * 100_000}
    cluster.api.patch(f"/api/v1/nodes/{kubelet.name}", {"metadata": {"annotations": details}})

    words = KubernetesNodeWords(clusters).of(record_of(kubelet))

    held = HeldBySystem("HyperPod", f"{DEEP_CHECK}=Failed")
    faults = ("NvidiaErrorTerminate", "Xid74", "x" * 500)
    assert words == NodeWords(kubelet.name, False, held, "Unschedulable", "Failed", *faults)
