"""A node is taken out of service by a taint and a cordon, and given back without a mark, whatever others have done."""

from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.gate import KubernetesGate
from nodeheal.adapters.kubernetes.nodes import ISOLATED_TAINT, UNCHECKED_TAINT
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.holder import HeldByNodeheal, HeldByPerson, HeldBySystem
from nodeheal.domain.fleet.node import Node
from sandbox.kubernetes.kubelet import Kubelet
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.node_records import INCIDENT, record_of

UNCHECKED = {"key": UNCHECKED_TAINT, "value": "true", "effect": "NoSchedule"}
OTHERS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture
def gate(clusters: EksClusters) -> KubernetesGate:
    return KubernetesGate(clusters)


def spec(cluster: Cluster, kubelet: Kubelet) -> dict[str, Any]:
    return dict(cluster.api.get(f"/api/v1/nodes/{kubelet.name}")["spec"])


def lasting_taints(cluster: Cluster, kubelet: Kubelet) -> list[dict[str, Any]]:
    """Without the one that follows a cordon, which a controller takes off a moment later."""
    return [
        taint
        for taint in spec(cluster, kubelet).get("taints", [])
        if taint["key"] != "node.kubernetes.io/unschedulable"
    ]


def notes(cluster: Cluster, kubelet: Kubelet) -> dict[str, Any]:
    return dict(cluster.api.get(f"/api/v1/nodes/{kubelet.name}")["metadata"].get("annotations") or {})


def drain(gate: KubernetesGate, node: Node) -> Any:
    return gate.drain_all([node], [node.node_id])[node.node_id]


def undrain(gate: KubernetesGate, node: Node) -> Any:
    return gate.undrain(node, gate.placement_of(node))


def test_a_drained_node_has_the_incident_in_its_taint_and_keeps_the_taints_of_others(
    cluster: Cluster, gate: KubernetesGate
) -> None:
    kubelet = cluster.node(OTHERS)
    node = record_of(kubelet)

    drained = [drain(gate, node) for _ in range(2)]

    ours = {"key": ISOLATED_TAINT, "value": INCIDENT, "effect": "NoSchedule"}
    found = spec(cluster, kubelet)
    assert [one.placement for one in drained] == [kubelet.name] * 2
    assert (found["unschedulable"], [OTHERS in found["taints"], ours in found["taints"]]) == (True, [True, True])
    assert gate.placement_of(node).held_by == HeldByNodeheal(INCIDENT)
    assert undrain(gate, node) is None
    assert (lasting_taints(cluster, kubelet), spec(cluster, kubelet).get("unschedulable")) == ([OTHERS], None)
    assert "nodeheal" not in str(notes(cluster, kubelet))


def test_what_was_cordoned_before_stays_cordoned_and_is_the_persons_again(
    cluster: Cluster, gate: KubernetesGate
) -> None:
    kubelet = cluster.node()
    node = record_of(kubelet)
    cluster.plane.kubectl("cordon", kubelet.name)
    before = gate.placement_of(node)

    drain(gate, node)
    kept = undrain(gate, node)

    assert (before.is_schedulable, before.held_by) == (False, HeldByPerson("kubectl", how="cordoned"))
    assert kept == HeldByPerson("kubectl", how="cordoned")
    assert (spec(cluster, kubelet)["unschedulable"], lasting_taints(cluster, kubelet)) == (True, [])


def test_what_a_person_cordons_again_under_our_taint_stays_cordoned(cluster: Cluster, gate: KubernetesGate) -> None:
    kubelet = cluster.node()
    node = record_of(kubelet)
    drain(gate, node)
    for verb in ("cordon", "uncordon", "cordon"):  # the first finds it cordoned, and writes nothing
        cluster.plane.kubectl(verb, kubelet.name)

    kept = undrain(gate, node)

    assert kept == HeldByPerson("kubectl", how="cordoned")
    assert (spec(cluster, kubelet)["unschedulable"], ISOLATED_TAINT in str(spec(cluster, kubelet))) == (True, False)


def test_our_cordon_goes_though_somebody_took_our_taint_off(cluster: Cluster, gate: KubernetesGate) -> None:
    kubelet = cluster.node()
    node = record_of(kubelet)
    drain(gate, node)
    cluster.plane.kubectl("taint", "node", kubelet.name, f"{ISOLATED_TAINT}-")

    held_by = gate.placement_of(node).held_by

    assert (held_by, undrain(gate, node)) == (HeldByNodeheal(""), None)
    assert spec(cluster, kubelet).get("unschedulable") is None


def test_an_uncordon_by_a_person_is_seen_and_not_undone_while_the_taint_stands(
    cluster: Cluster, gate: KubernetesGate
) -> None:
    kubelet = cluster.node()
    node = record_of(kubelet)
    drain(gate, node)
    cluster.plane.kubectl("uncordon", kubelet.name)

    drain(gate, node)  # a repeat of the step

    assert gate.placement_of(node).is_schedulable
    assert not spec(cluster, kubelet).get("unschedulable")
    assert ISOLATED_TAINT in {key for key, _ in cluster.taints(kubelet.name)}


def test_a_new_incident_isolates_a_node_that_a_person_has_uncordoned(cluster: Cluster, gate: KubernetesGate) -> None:
    kubelet = cluster.node(OTHERS)
    drain(gate, record_of(kubelet))
    cluster.plane.kubectl("uncordon", kubelet.name)
    later = replace(record_of(kubelet), open_incident=f"{INCIDENT}-2")

    drain(gate, later)

    assert (gate.placement_of(later).held_by, spec(cluster, kubelet)["unschedulable"]) == (
        HeldByNodeheal(f"{INCIDENT}-2"),
        True,
    )
    assert undrain(gate, later) is None
    assert (lasting_taints(cluster, kubelet), spec(cluster, kubelet).get("unschedulable")) == ([OTHERS], None)


def test_no_pod_comes_onto_a_drained_node_though_its_kubelet_uncordons_it(
    cluster: Cluster, gate: KubernetesGate
) -> None:
    kubelet = cluster.node()
    drain(gate, record_of(kubelet))
    kubelet.api.patch(f"/api/v1/nodes/{kubelet.name}", {"spec": {"unschedulable": None}})
    name = cluster.name("pod")
    body = {"nodeSelector": {"kubernetes.io/hostname": kubelet.name}, "containers": [{"name": "a", "image": "none"}]}

    cluster.create("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": body})

    cluster.wait(lambda: "untolerated taint" in str(cluster.pod(name).get("status")), "the scheduler refuses the node")


def test_a_node_is_found_by_its_machine_under_whatever_name(cluster: Cluster, gate: KubernetesGate) -> None:
    first, second = cluster.node(), cluster.node()

    names = [gate.placement_of(record_of(kubelet)).name for kubelet in (second, first, second)]

    assert names == [second.name, first.name, second.name]
    with pytest.raises(NotFound, match="i-0fffffffffffffff0 is no node of Kubernetes cluster training"):
        gate.placement_of(eks.record("i-0fffffffffffffff0"))


@pytest.mark.parametrize(
    ("verb", "mark", "holder"),
    [
        ("annotate", "weave.works/kured-reboot-in-progress=now", "kured"),
        ("label", "k8saas.nvidia.com/cordon-by=nvsentinel", "NVSentinel"),
        ("label", "dgxc.nvidia.com/nvsentinel-state=quarantined", "NVSentinel"),
        ("taint", "karpenter.sh/disrupted=:NoSchedule", "Karpenter"),
        ("taint", "karpenter.sh/rebooting=:NoSchedule", "Karpenter"),
    ],
)
def test_other_systems_that_keep_a_node_are_named(
    cluster: Cluster, gate: KubernetesGate, verb: str, mark: str, holder: str
) -> None:
    kubelet = cluster.node()

    cluster.plane.kubectl(verb, "node", kubelet.name, mark)

    held_by = gate.placement_of(record_of(kubelet)).held_by
    assert isinstance(held_by, HeldBySystem)
    assert (held_by.name, mark.partition("=")[0] in held_by.why) == (holder, True)


def test_draino_keeps_a_node_for_as_long_as_it_is_cordoned(cluster: Cluster, gate: KubernetesGate) -> None:
    kubelet = cluster.node()
    node = record_of(kubelet)
    cluster.plane.kubectl("annotate", "node", kubelet.name, "draino.planet.com/conditions=KernelDeadlock=True,0s")
    held = []
    for verb in ("cordon", "uncordon"):
        cluster.plane.kubectl(verb, kubelet.name)
        held.append(gate.placement_of(node).held_by)

    assert held == [HeldBySystem("draino", "draino.planet.com/conditions=KernelDeadlock=True,0s"), None]


def test_a_write_by_others_in_between_is_kept_and_ours_is_made_on_top(
    cluster: Cluster, gate: KubernetesGate, monkeypatch: pytest.MonkeyPatch, clusters: EksClusters
) -> None:
    kubelet = cluster.node()
    api = clusters.api(eks.NAME)
    patch, writes = api.patch, iter(["a", "b"])

    def patched(path: str, change: Any) -> Any:
        if (value := next(writes, None)) is not None:
            cluster.plane.kubectl("taint", "node", kubelet.name, f"example.com/{value}=1:NoSchedule")
        return patch(path, change)

    monkeypatch.setattr(api, "patch", patched)

    drain(gate, record_of(kubelet))

    keys = {key for key, _ in cluster.taints(kubelet.name)}
    assert keys >= {"example.com/a", "example.com/b", ISOLATED_TAINT}


def test_a_node_that_others_write_without_end_is_asked_for_later(
    cluster: Cluster, gate: KubernetesGate, monkeypatch: pytest.MonkeyPatch, clusters: EksClusters
) -> None:
    kubelet = cluster.node()
    api = clusters.api(eks.NAME)
    patch = api.patch

    def patched(path: str, change: Any) -> Any:
        cluster.api.patch(f"/api/v1/nodes/{kubelet.name}", {"metadata": {"annotations": {"a": cluster.name("b")}}})
        return patch(path, change)

    monkeypatch.setattr(api, "patch", patched)

    with pytest.raises(NotAccepted, match="is being written by others"):
        drain(gate, record_of(kubelet))
    assert ISOLATED_TAINT not in {key for key, _ in cluster.taints(kubelet.name)}


def test_a_new_node_is_out_of_service_from_its_registration_until_it_is_given_back(
    cluster: Cluster, gate: KubernetesGate
) -> None:
    kubelet = cluster.node(UNCHECKED, OTHERS)
    node = record_of(kubelet)
    before = gate.placement_of(node)

    drained, returned = drain(gate, node), undrain(gate, node)

    assert (before.is_schedulable, before.held_by) == (False, HeldBySystem("nodeheal", ANY))
    assert (drained.held_by, returned) == (HeldByNodeheal(INCIDENT), None)
    assert lasting_taints(cluster, kubelet) == [OTHERS]
    assert gate.placement_of(node).is_schedulable


def test_a_person_who_cordons_a_new_node_keeps_it(cluster: Cluster, gate: KubernetesGate) -> None:
    kubelet = cluster.node(UNCHECKED)
    cluster.plane.kubectl("cordon", kubelet.name)

    assert undrain(gate, record_of(kubelet)) == HeldByPerson(ANY, how="cordoned")


def test_a_node_whose_kubelet_falls_silent_is_not_reached(cluster: Cluster, gate: KubernetesGate) -> None:
    kubelet, stranger = cluster.node(), eks.record("i-0123456789abcdef0")
    cluster.node()  # where no node of a zone is ready, nothing is said of any
    node = record_of(kubelet)
    before = gate.liveness(node).is_up

    kubelet.power_off()

    cluster.wait(lambda: gate.liveness(node).is_up is False, "the kubelet's silence is noticed")
    assert (before, gate.liveness(stranger).is_up) == (True, None)


def test_our_cordon_is_ours_though_the_api_server_forgets_who_has_written_it(
    cluster: Cluster, gate: KubernetesGate
) -> None:
    kubelet = cluster.node()
    node = record_of(kubelet)
    drain(gate, node)
    cluster.api.patch(f"/api/v1/nodes/{kubelet.name}", {"metadata": {"managedFields": [{}]}})

    assert undrain(gate, node) is None
    assert (spec(cluster, kubelet).get("unschedulable"), lasting_taints(cluster, kubelet)) == (None, [])


def test_a_cordon_from_before_stays_though_the_api_server_forgets_who_has_written_it(
    cluster: Cluster, gate: KubernetesGate
) -> None:
    kubelet = cluster.node()
    node = record_of(kubelet)
    cluster.plane.kubectl("cordon", kubelet.name)
    drain(gate, node)
    cluster.api.patch(f"/api/v1/nodes/{kubelet.name}", {"metadata": {"managedFields": [{}]}})

    assert undrain(gate, node) == HeldByPerson("somebody", how="cordoned")
    assert (spec(cluster, kubelet)["unschedulable"], lasting_taints(cluster, kubelet)) == (True, [])
