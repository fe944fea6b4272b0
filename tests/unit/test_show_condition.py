"""A broken accelerator is shown at the node's scheduler from the first decision until the node is given back."""

from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from tests.support.builders import ACT, scheduler_in, xid
from tests.support.fake_cluster import BROKEN, FakeCluster

OBSERVE = ACT.model_copy(update={"default_pool": ACT.default_pool.model_copy(update={"mode": Mode.observe})})


def neuron(code: str = "SRAM_UNCORRECTABLE_ERROR", **changes: Any) -> HealthEvent:
    return xid(family=Family.neuron, code=code, component="neuron3", evidence=f"NEURON_HW_ERR={code}", **changes)


def shown_by(event: HealthEvent, policy: RecoveryPolicy = OBSERVE) -> str | None:
    cluster = FakeCluster(policy)
    cluster.reports(event)
    found: str | None = scheduler_in(cluster.ports).conditions.get(BROKEN)
    return found


def test_a_pool_that_is_only_observed_shows_the_reason_of_node_problem_detector_and_the_incident() -> None:
    cluster = FakeCluster(OBSERVE)

    cluster.reports(neuron())

    line = f"(On-chip memory of a NeuronCore lost data) on neuron3, {cluster.incident_id}"
    assert scheduler_in(cluster.ports).conditions == {
        BROKEN: f"NeuronHasError_SRAM_UNCORRECTABLE_ERROR: NEURON SRAM_UNCORRECTABLE_ERROR {line}"
    }
    assert cluster.commands == []


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (xid(79), "Xid79"),
        (neuron("FIRMWARE_TIMEOUT"), "NeuronHasError_FIRMWARE_TIMEOUT"),
        (xid(family=Family.neuron, code="a.b-c/d"), "NeuronHasError_a_b_c_d"),
        (xid(13), None),  # the application's
        (xid(family=Family.host, code="disk_errors", component="nvme0n1"), None),
        (xid(family=Family.neuron, code="NUMERICAL_ERROR", verdict=Verdict.DEGRADED), None),
    ],
)
def test_the_reason_is_a_word_of_family_and_code_where_an_accelerator_is_broken(
    event: HealthEvent, reason: str | None
) -> None:
    shown = shown_by(event)

    assert (shown and shown.partition(":")[0]) == reason


def test_a_drill_says_that_it_is_one() -> None:
    shown = shown_by(xid(79, evidence=f"NVRM: Xid (PCI:0000:b9:00): 79 {DRILL_MARK}"))

    assert shown is not None
    assert shown.startswith("Xid79: drill: ")


def test_a_node_that_is_back_shows_nothing_and_one_that_is_not_shows_its_fault() -> None:
    healed, stuck = FakeCluster(spare=False), FakeCluster(spare=False)
    stuck.diagnoses[BROKEN] = Verdict.FAILED

    for cluster in (healed, stuck):
        cluster.reports(xid(79))

    assert scheduler_in(healed.ports).conditions == {}
    assert scheduler_in(stuck.ports).conditions[BROKEN].startswith("Xid79: ")


def test_a_scheduler_that_refuses_the_condition_stops_no_recovery(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster()

    def refuse(*_: object) -> None:
        raise PermissionError("sts:AssumeRole")

    monkeypatch.setattr(type(scheduler_in(cluster.ports)), "show", refuse)

    cluster.reports(xid(79))

    assert cluster.told[-1].startswith("[nodeheal] recovered")
    assert "the condition of a node is not shown" in caplog.text
