"""What the events of an incident ask for: by the catalog, the policy's overrides and the driver's own word."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, Ending, Family, Step, Verdict
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.services.intake.ingest import Ingested, ingest
from tests.support.builders import ACT, NOW, xid
from tests.support.fake_cluster import FakeCluster
from tests.support.incident_steps import Incident
from tests.support.observations import NODE, OTHER, later, later_fault, seen, stated, sxid
from tests.support.policies import with_policy
from tests.support.recovery_story import SPARE, Story
from tests.support.replays import HOUR


@pytest.mark.parametrize(
    ("code", "subcode", "step"),
    [
        (64, "GPU_RESET", Step.REBOOT),  # the table replaces
        (74, "NODE_REBOOT", Step.REBOOT),  # the table replaces
        (31, "NODE_REBOOT", Step.REBOOT),  # the table restarts the job
    ],
)
def test_the_drivers_own_word_wins_over_the_table(code: int, subcode: str, step: Step) -> None:
    story = Story(xid(code)).reports(stated(subcode)).isolated()

    assert story.next().step is step
    assert "The driver states the recovery action itself" in story.next().reason


def test_the_drivers_newest_word_counts() -> None:
    first = stated("NODE_REBOOT", observed_at=later(1))
    then = stated("NONE", observed_at=later(2), verdict=Verdict.OK)

    assert Story(xid(79)).reports(then).reports(first).next().ending is Ending.OBSERVED_ONLY
    again = stated("NODE_REBOOT", event_id="again", observed_at=later(3))
    assert Story(xid(79)).reports(then).reports(first).reports(again).next().step is Step.ISOLATE


def test_the_drivers_word_about_another_gpu_says_nothing_about_this_one() -> None:
    elsewhere = stated("NODE_REBOOT", component="0000:ba:00.0")

    assert Story(xid(64)).reports(elsewhere).isolated().next().step is Step.REPLACE


def test_a_secondary_fault_stays_a_secondary_fault_whatever_the_driver_states_beside_it() -> None:
    decision = Story(xid(79)).reports(xid(45)).reports(stated("NODE_REBOOT")).next()

    assert decision.fault.startswith("XID 79")


@pytest.mark.parametrize("code", ["19049", "20035"])  # the guide calls the first one non-fatal, and lacks the second
def test_a_switch_error_that_its_driver_calls_fatal_is_treated_as_a_fatal_one(code: str) -> None:
    assert Story(sxid(code=code)).isolated().next().step is Step.REBOOT


@pytest.mark.parametrize("code", ["19048", "28006"])  # the guide calls the first one fatal, and lacks the second
def test_a_switch_error_that_its_driver_calls_non_fatal_is_counted(code: str) -> None:
    counted = sxid(code=code, subcode="nonfatal", verdict=Verdict.DEGRADED)

    assert Story(counted).next().ending is Ending.OBSERVED_ONLY


def test_a_switch_error_without_the_drivers_word_goes_to_a_human_if_nobody_knows_it() -> None:
    assert Story(sxid(code="28006", subcode=None, verdict=Verdict.UNKNOWN)).next().step is Step.ESCALATE


@pytest.mark.parametrize("code", ["fatal", "dpc"])
def test_a_pcie_error_that_the_kernel_recovers_touches_nothing_and_one_that_it_cannot_reboots(code: str) -> None:
    error = xid(79, family=Family.pcie_aer, code=code, verdict=Verdict.DEGRADED)
    failed = xid(79, family=Family.pcie_aer, code="recovery_failed", event_id="failed")

    assert Story(error).next().ending is Ending.OBSERVED_ONLY
    assert Story(error).reports(failed).isolated().next().step is Step.REBOOT


def test_what_the_node_reported_before_it_last_passed_its_diagnostics_says_nothing() -> None:
    stale = xid(74, event_id="stale", observed_at=NOW - timedelta(hours=2))

    story = Story(xid(79)).amid(healthy_since=NOW - timedelta(hours=1)).reports(stale).isolated()

    assert story.next().step is Step.REBOOT


def test_what_another_boot_or_another_node_reported_says_nothing() -> None:
    story = (
        Story(xid(79)).reports(xid(74, event_id="a", boot_id="boot-0")).reports(xid(74, event_id="b", node_id=SPARE))
    )

    assert story.isolated().next().step is Step.REBOOT


def test_an_override_wins_over_the_catalog_and_says_why() -> None:
    policy = with_policy(overrides=[{"fault": "xid/79", "ladder": ["REPLACE"], "why": "our boards never come back"}])

    decision = Story(xid(79), policy=policy).isolated().next()

    assert decision.step is Step.REPLACE
    assert "our boards never come back" in decision.reason


def test_an_override_wins_over_the_drivers_word_too() -> None:
    policy = with_policy(overrides=[{"fault": "xid/79", "ladder": ["REPLACE"], "why": "our boards never come back"}])

    assert Story(xid(79), policy=policy).reports(stated("NODE_REBOOT")).isolated().next().step is Step.REPLACE


def test_the_most_exact_override_wins() -> None:
    policy = with_policy(
        overrides=[
            {"fault": "xid/*", "ladder": ["ISOLATE"], "why": "every XID"},
            {"fault": "xid/79", "ladder": ["REPLACE"], "why": "this one"},
            {"fault": "xid/79", "ladder": ["REBOOT"], "why": "this one here", "pools": ["demo"]},
        ]
    )

    def winner(fault: str, pool: str) -> str:
        found = policy.override(fault, pool)
        return found.why if found else ""

    assert winner("xid/48", "p") == "every XID"
    assert winner("xid/79", "p") == "this one"
    assert winner("xid/79", "demo") == "this one here"
    assert winner("sxid/79", "p") == ""


def test_an_override_may_teach_a_code_that_nobody_knows() -> None:
    policy = with_policy(overrides=[{"fault": "xid/999", "ladder": ["REBOOT"], "why": "the vendor told us"}])

    assert Story(xid(999, verdict=Verdict.UNKNOWN), policy=policy).next().step is Step.ISOLATE


@pytest.mark.parametrize(
    ("product", "step"),
    [
        (None, Step.ISOLATE),
        ("NVIDIA H100 80GB HBM3", Step.ISOLATE),
        ("NVIDIA L40S", Step.ISOLATE),
        ("NVIDIA A100-SXM4-80GB", Step.ESCALATE),
    ],
)
def test_a_code_that_the_sources_do_not_name_for_the_product_goes_to_a_human(product: str | None, step: Step) -> None:
    assert Story(xid(143, product=product)).next().step is step


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.DEGRADED])
def test_a_fault_that_is_reported_with_doubt_touches_nothing(verdict: Verdict) -> None:
    decision = Story(xid(79, verdict=verdict)).next()

    assert decision.step is Step.ESCALATE
    assert verdict.value in decision.reason


WINDOW = ACT.correlation.window_seconds


def test_an_incident_whose_timeline_has_lost_its_event_is_still_decided_about_it() -> None:
    story = Story(xid(79))
    story.history = replace(story.history, events=())

    assert story.next().step is Step.ISOLATE


def test_an_incident_that_was_opened_by_good_news_is_closed_and_not_a_surprise() -> None:
    decision = Story(xid(79, verdict=Verdict.OK)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert decision.reason == "XID 79: It reports no fault."


def test_good_news_asks_for_nothing() -> None:
    well = xid(79, event_id="well", verdict=Verdict.OK)

    assert Story(xid(92)).reports(well).next().ending is Ending.OBSERVED_ONLY


def test_an_override_leaves_a_link_a_link() -> None:
    rule = {"fault": "xid/74", "ladder": ["REPLACE"], "why": "our boards never come back"}
    story = Story(xid(74), policy=with_policy(overrides=[rule])).amid(observations=(seen(74),)).isolated()

    assert story.next().step is Step.DIAGNOSE


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (xid(63, verdict=Verdict.UNKNOWN), "It is reported as UNKNOWN"),
        (xid(154, verdict=Verdict.UNKNOWN), "XID 154"),
    ],
    ids=["where the catalog is sure", "where the catalog is not sure either"],
)
def test_a_doubt_is_told_where_the_catalog_has_none(event: HealthEvent, reason: str) -> None:
    decision = Story(event).amid(job_is_running=True).next()

    assert decision.step is Step.ESCALATE
    assert reason in decision.reason
    assert ("the check cannot tell" in decision.reason) is (event.code == "63")


@pytest.mark.parametrize(
    ("event", "step"),
    [
        (xid(79, family=Family.sxid, code="20009"), Step.CLOSE),
        (xid(63, subcode="fatal"), Step.WAIT),
        (xid(79, family=Family.sxid, code="20009", subcode="fatal"), Step.ISOLATE),
    ],
    ids=["not called fatal", "no switch", "a switch that is called fatal"],
)
def test_fatal_is_a_word_of_the_switches(event: HealthEvent, step: Step) -> None:
    assert Story(event).amid(job_is_running=True).next().step is step


@pytest.mark.parametrize(
    ("code", "subcode", "step"),
    [
        (103, None, Step.ESCALATE),
        (64, None, Step.REPLACE),
        (159, None, Step.ESCALATE),
        (145, "RLW_TAGSTATE/0x80000000", Step.CLOSE),
        (150, "MSE/0x00000000", Step.ESCALATE),
    ],
    ids=[
        "it may come to a reboot",
        "known for it",
        "observed at first",
        "never more than observed",
        "a reboot at once",
    ],
)
def test_a_code_that_is_not_known_for_the_product_touches_nothing_that_it_could_destroy(
    code: int, subcode: str | None, step: Step
) -> None:
    event = xid(code, subcode=subcode, product="NVIDIA A100-SXM4-80GB")
    story = Story(event)
    if step is Step.REPLACE:
        story.isolated()

    assert story.next().step is step


def _said(subcode: str | None = "NONE", seconds: float = 0, **changes: Any) -> HealthEvent:
    verdict = Verdict.OK if subcode == "NONE" else Verdict.FAILED
    known = {"event_id": f"154-{subcode}", "verdict": verdict, "observed_at": later(seconds)}
    return xid(154, **{**known, "subcode": subcode, **changes})


@pytest.mark.parametrize(
    ("said", "step"),
    [
        (_said(None), Step.ISOLATE),
        (_said(family=Family.sxid), Step.ISOLATE),
        (_said(seconds=WINDOW), Step.CLOSE),
        (_said(seconds=-WINDOW), Step.CLOSE),
        (_said(seconds=-WINDOW - 1), Step.ISOLATE),
        (_said(seconds=WINDOW + 1), Step.ISOLATE),
    ],
    ids=["without an action", "a switch's 154", "at the window's end", "at its beginning", "before it", "after it"],
)
def test_only_a_statement_of_the_driver_close_to_the_fault_wins(said: HealthEvent, step: Step) -> None:
    assert Story(xid(79)).reports(said).next().step is step


@pytest.mark.parametrize(
    ("event", "step"),
    [
        (xid(79, family=Family.nvml, code="GPU_LOST"), Step.ISOLATE),
        (xid(79, family=Family.nvrm_other, code="gpu_lost"), Step.CLOSE),
    ],
    ids=["another tool's", "the driver's own"],
)
def test_the_driver_speaks_for_its_own_lines(event: HealthEvent, step: Step) -> None:
    assert Story(event).reports(_said()).next().step is step


def test_a_statement_wins_over_the_table_and_not_over_itself() -> None:
    by_itself, about_another = Story(_said("NODE_REBOOT")), Story(xid(79)).reports(_said("NODE_REBOOT"))

    assert "The driver states the recovery action itself" not in by_itself.next().why
    assert "The driver states the recovery action itself" in about_another.next().why


def test_a_link_stays_a_link_whatever_the_driver_wants_done_about_it() -> None:
    story = Story(xid(74)).reports(_said("NODE_REBOOT")).amid(observations=(seen(74),))
    story.amid(spent={(node_scope(NODE), Action.REBOOT): 1}).isolated()

    assert story.next().step is Step.DIAGNOSE


def test_the_gravest_fault_decides_whichever_came_first() -> None:
    it = Incident(63)
    ingest(xid(79), it.ports, ACT)

    assert it.request().decision.step is Step.ISOLATE


def test_what_another_node_reports_is_no_fault_of_this_one() -> None:
    story = Story(xid(79)).reports(later_fault(1, 48, node_id=OTHER))

    assert [event.node_id for event in assess_faults(story.history, ACT).events] == [xid().node_id]


def test_a_fault_that_nobody_waited_with_is_seen_to_although_the_node_has_passed_since() -> None:
    """The node passed, and failed: which came last, a late event does not say."""
    story = Story(xid(79)).amid(healthy_since=NOW + timedelta(seconds=30))

    assert story.next().step is Step.ISOLATE


REMAP = 63


def test_a_harmless_sub_code_does_not_hide_a_grave_one_of_the_same_code() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(149, subcode="NETIR_LINK_EVT/38", verdict=Verdict.DEGRADED))
    cluster.clock.advance(60)

    grave = xid(149, subcode="NETIR_LINK_EVT/10", event_id="grave", observed_at=cluster.clock())

    assert ingest(grave, cluster.ports, ACT) is Ingested.OPENED


def test_the_drivers_word_about_something_between_two_faults_hours_apart_is_not_about_them() -> None:
    story = Story(xid(79)).reports(xid(79, event_id="again", observed_at=later(10 * HOUR)))
    story.reports(xid(154, subcode="NONE", verdict=Verdict.OK, observed_at=later(5 * HOUR)))

    assert story.next().step is Step.ISOLATE


def test_what_came_over_a_week_has_not_come_three_times_in_a_day() -> None:
    degraded = [
        xid(159, verdict=Verdict.DEGRADED, event_id=f"n{n}", observed_at=later(n * 48 * HOUR)) for n in range(3)
    ]
    story = Story(xid(REMAP)).amid(job_is_running=True)
    for event in degraded:
        story.reports(event)

    assert story.next().step is Step.WAIT
