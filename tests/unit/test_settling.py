"""Accelerators that are missing after a boot or an upgrade are given time, and then judged by the last report."""

from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, Outcome, Step, Verdict
from tests.support.builders import ACT, NOW, xid
from tests.support.observations import OTHER, later, no_gpus
from tests.support.recovery_story import Story


@pytest.mark.parametrize("since", ["booted_at", "agent_since"])
def test_missing_gpus_are_given_time_after_a_boot_or_an_agent_upgrade(since: str) -> None:
    story = Story(no_gpus()).amid(**{since: NOW - timedelta(seconds=30)})

    decision = story.next()

    assert decision.step is Step.WAIT
    assert decision.deadline_seconds == 270 + ACT.deadlines.quick_seconds


def test_gpus_that_are_still_missing_when_the_node_has_settled_are_a_fault() -> None:
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    story.reports(no_gpus(event_id="still", observed_at=later(301))).now = later(330)

    assert story.next().step is Step.ISOLATE


def test_gpus_that_came_up_meanwhile_close_the_incident() -> None:
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.DONE)
    story.reports(no_gpus(event_id="fine", observed_at=later(301), verdict=Verdict.OK)).now = later(302)

    assert story.next().ending is Ending.OBSERVED_ONLY
    assert "gone when it settled" in story.next().reason


@pytest.mark.parametrize("verdict", [None, Verdict.UNKNOWN])
def test_silence_after_the_settle_time_is_not_health(verdict: Verdict | None) -> None:
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    if verdict:
        story.reports(no_gpus(event_id="vague", observed_at=later(301), verdict=verdict))
    story.now = later(330)

    assert story.next().step is Step.ESCALATE
    assert "silence is not health" in story.next().reason


def test_gpus_that_go_missing_in_the_middle_of_the_day_are_a_fault_at_once() -> None:
    assert Story(no_gpus()).amid(booted_at=NOW - timedelta(hours=5)).next().step is Step.ISOLATE


HOUR, DAY = 3_600, 86_400


def test_a_boot_after_the_fault_is_no_excuse_for_it() -> None:
    assert Story(no_gpus()).amid(booted_at=later(10)).next().step is Step.ISOLATE


def test_the_later_of_boot_and_upgrade_is_what_a_node_settles_from() -> None:
    around = {"booted_at": later(-5 * HOUR), "agent_since": later(-30)}

    assert Story(no_gpus()).amid(**around).next().step is Step.WAIT


def test_gpus_that_went_missing_long_after_the_boot_are_a_fault_although_they_came_back() -> None:
    story = Story(no_gpus()).amid(booted_at=later(-5 * HOUR))
    story.reports(no_gpus(event_id="back", observed_at=later(5), verdict=Verdict.OK))

    assert story.next().step is Step.ISOLATE


def _settling(now: float, *reports: HealthEvent) -> Decision:
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    for event in reports:
        story.reports(event)
    story.now = later(now)
    return story.next()


def _then(seconds: float, event_id: str, verdict: Verdict = Verdict.OK, **changes: Any) -> HealthEvent:
    return no_gpus(**{"event_id": event_id, "observed_at": later(seconds), "verdict": verdict, **changes})


def test_what_comes_in_the_moment_in_which_it_should_have_settled_counts() -> None:
    assert Story(no_gpus()).amid(booted_at=later(-300)).next().step is Step.ISOLATE
    assert _settling(301, _then(300, "well")).ending is Ending.OBSERVED_ONLY
    assert _settling(300).step is Step.ESCALATE


@pytest.mark.parametrize(
    "well",
    [_then(301, "well", node_id=OTHER), _then(301, "well", code="GPU_COUNT_MISMATCH")],
    ids=["another node", "another check"],
)
def test_good_news_of_another_node_or_check_is_none_of_this_one(well: HealthEvent) -> None:
    assert "silence is not health" in _settling(310, well).reason


@pytest.mark.parametrize(
    ("reports", "step"),
    [
        ((_then(301, "b", Verdict.FAILED), _then(302, "a")), Step.CLOSE),
        ((_then(301, "b"), _then(302, "a", Verdict.FAILED)), Step.ISOLATE),
        ((_then(301, "b"), _then(301, "a", Verdict.FAILED)), Step.CLOSE),
        ((_then(301, "b", Verdict.FAILED), _then(301, "a")), Step.ISOLATE),
    ],
    ids=["well at last", "missing at last", "the same moment, well", "the same moment, missing"],
)
def test_the_last_report_after_the_settle_time_counts_in_whatever_order_they_came(
    reports: tuple[HealthEvent, ...], step: Step
) -> None:
    assert _settling(310, *reports).step is step
    assert _settling(310, *reversed(reports)).step is step


REMAP = 63


@pytest.mark.parametrize("beside", [REMAP, 31, 999], ids=["a remap", "the job's own fault", "an unknown fault"])
def test_gpus_that_came_up_meanwhile_do_not_close_what_was_reported_beside_them(beside: int) -> None:
    story = Story(no_gpus()).amid(booted_at=NOW, job_is_running=True).reports(xid(beside, observed_at=later(5)))
    story.then(Outcome.DONE)
    story.reports(no_gpus(event_id="fine", observed_at=later(301), verdict=Verdict.OK)).now = later(302)

    assert story.next().step is not Step.CLOSE


def test_one_gpu_that_came_up_does_not_speak_for_another_that_is_missing() -> None:
    def missing(gpu: int, at: float, **changes: Any) -> HealthEvent:
        known = {"code": "GPU_MISSING", "component": f"GPU {gpu}", "observed_at": later(at)}
        return no_gpus(event_id=f"{gpu}-{at}", **{**known, **changes})

    story = Story(missing(3, 0)).amid(booted_at=NOW).then(Outcome.DONE)
    story.reports(missing(3, 301)).reports(missing(5, 302, verdict=Verdict.OK)).now = later(303)

    assert story.next().step is Step.ISOLATE
