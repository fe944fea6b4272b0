"""The decision core, told as stories: what has happened so far, and what comes next."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import Isolated
from nodeheal.contract.vocabulary import Action, Ending, Escalation, Family, Outcome, Step, Verdict
from nodeheal.domain.faults.catalog import catalog
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode, Override, PoolPolicy
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.situation import Situation
from tests.support.builders import ACT, NOW, xid
from tests.support.incident_steps import A
from tests.support.observations import NODE, later, later_fault, new_node, seen
from tests.support.policies import with_policy
from tests.support.recovery_story import OBSERVE, SPARE, Story, steps_of
from tests.support.replays import HOUR


def test_every_step_has_its_own_time() -> None:
    known, story = ACT.deadlines, Story(xid(79))

    given = [story.next().deadline_seconds]
    given += [story.isolated().next().deadline_seconds, story.rebooted().next().deadline_seconds]

    assert given == [known.isolate_seconds, known.reboot_seconds, known.diagnose_seconds]
    assert known.stop_start_seconds not in given


def test_a_fault_that_is_only_isolated_says_so() -> None:
    assert Story(xid(54)).isolated().next().reason.endswith("isolated, as the catalog asks; nothing is left to try")


def test_a_gpu_off_the_bus_is_isolated_rebooted_proven_returned_and_its_job_restarted() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.DONE, "llama runs again")

    assert steps_of(story) == ["ISOLATE", "REBOOT", "DIAGNOSE", "RETURN", "RESTART_WORKLOAD", "CLOSE"]
    assert story.next().ending is Ending.RECOVERED
    assert "rebooted" in story.next().reason
    assert "llama runs again" in story.next().reason


def test_a_node_that_fails_its_diagnostics_after_the_reboot_is_replaced() -> None:
    decision = Story(xid(79)).isolated().rebooted().failed().next()

    assert decision.step is Step.REPLACE
    assert decision.reason == "the reboot did not help (diagnostics failed: pcie); next is a replacement"


def test_the_same_fault_on_the_new_boot_is_replaced_even_if_diagnostics_pass() -> None:
    again = xid(79, event_id="again", boot_id="boot-2")

    decision = Story(xid(79)).isolated().rebooted().passed().reports(again).next()

    assert decision.step is Step.REPLACE
    assert "XID 79" in decision.reason


@pytest.mark.parametrize(
    "event",
    [
        xid(45, event_id="later", boot_id="boot-2"),
        xid(31, event_id="later", boot_id="boot-2"),
        xid(79, event_id="later", boot_id="boot-2", verdict=Verdict.UNKNOWN),
        xid(79, event_id="later", boot_id="boot-1"),
    ],
    ids=["a secondary fault", "an application's fault", "a check that cannot tell", "a fault of the old boot"],
)
def test_only_a_failed_check_of_the_hardware_on_the_new_boot_speaks_against_the_reboot(event: HealthEvent) -> None:
    assert Story(xid(79)).isolated().rebooted().passed().reports(event).next().step is Step.RETURN


def test_a_swap_ends_with_a_human_for_the_broken_node() -> None:
    story = Story(xid(74)).isolated().swapped().passed().then(Outcome.DONE, "llama runs again")

    assert steps_of(story) == ["ISOLATE", "FREEZE_EVIDENCE", "REPLACE", "DIAGNOSE", "RESTART_WORKLOAD", "ESCALATE"]
    assert story.next().ending is Ending.HANDED_TO_A_HUMAN
    assert f"swapped for spare {SPARE}" in story.next().reason


def test_a_spare_that_fails_is_not_given_the_job() -> None:
    story = Story(xid(74)).isolated().swapped().failed()

    assert story.next().step is Step.ESCALATE
    assert "diagnostics failed: pcie" in story.next().reason


def test_a_spare_that_reports_a_fault_is_not_given_the_job() -> None:
    broken_too = xid(79, event_id="spare", node_id=SPARE, boot_id="boot-9")

    story = Story(xid(74)).isolated().swapped().passed().reports(broken_too)

    assert story.next().step is Step.ESCALATE
    assert SPARE in story.next().reason


def test_a_new_machine_that_its_scheduler_gives_work_is_neither_diagnosed_nor_returned() -> None:
    story = Story(xid(74), job=None).isolated().renewed(serves_at_once=True)
    released = replace(story.history, context=replace(story.history.context, is_released_or_retired=True))

    for history in (story.history, released):  # the broken node has been retired with the replacement
        decision = decide(Situation(history, ACT), NOW)
        assert (decision.step, decision.ending) == (Step.CLOSE, Ending.RECOVERED)
        assert f"swapped for new machine {SPARE}, which its scheduler gives work" in decision.reason


def test_a_new_machine_that_serves_already_and_reports_a_fault_is_left_to_a_human() -> None:
    broken_too = xid(79, event_id="new", node_id=SPARE, boot_id="boot-9")

    story = Story(xid(74), job=None).isolated().renewed(serves_at_once=True).reports(broken_too)

    assert story.next().escalation is Escalation.FAILED_AFTER_RETURN
    assert SPARE in story.next().reason


def test_without_a_spare_a_human_is_told_what_was_tried() -> None:
    story = Story(xid(79)).isolated().rebooted().failed().then(Outcome.REFUSED, "pool demo has no healthy spare")

    assert story.next().step is Step.ESCALATE
    assert "the reboot did not help (diagnostics failed: pcie)" in story.next().reason
    assert "the replacement was not possible (pool demo has no healthy spare)" in story.next().reason


def test_a_reboot_that_nobody_can_tell_about_is_not_repeated() -> None:
    decision = Story(xid(79)).isolated().then(Outcome.UNKNOWN, "it may have been sent").next()

    assert decision.step is Step.REPLACE


def test_a_reboot_that_was_not_seen_to_end_is_told_as_such() -> None:
    decision = Story(xid(79)).isolated().then(Outcome.TIMED_OUT, "no new boot id").next()

    assert decision.reason == "the reboot was begun and not seen to end (no new boot id); next is a replacement"


def test_diagnostics_that_cannot_tell_go_to_a_human() -> None:
    story = Story(xid(79)).isolated().rebooted().then(Outcome.UNKNOWN, "diagnostics gave no result")

    assert story.next().step is Step.ESCALATE


def test_diagnostics_that_hang_count_as_failed() -> None:
    story = Story(xid(79)).isolated().rebooted().then(Outcome.TIMED_OUT, "no answer within 45 s")

    assert story.next().step is Step.REPLACE


def test_tasks_that_would_not_stop_do_not_keep_a_drained_node_from_its_reboot() -> None:
    story = Story(xid(79)).then(Outcome.TIMED_OUT, "rank 1 not seen to stop", facts=Isolated(is_drained=True))

    assert story.next().step is Step.REBOOT


def test_a_job_that_cannot_be_restarted_goes_to_a_human() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.REFUSED, "10 of 10 are spent")

    assert story.next().step is Step.ESCALATE
    assert "10 of 10 are spent" in story.next().reason


def test_a_return_that_is_refused_is_not_repeated() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.REFUSED, "boot-3 has passed no diagnostics")

    assert story.next().step is Step.ESCALATE


def test_an_unknown_code_goes_to_a_human_with_everything_untouched() -> None:
    decision = Story(xid(999)).next()

    assert decision.step is Step.ESCALATE
    assert "does not know this fault" in decision.reason


def test_observe_mode_says_what_it_would_do_and_does_nothing() -> None:
    decision = Story(xid(79), policy=OBSERVE).next()

    assert decision.step is Step.CLOSE
    assert decision.ending is Ending.OBSERVED_ONLY
    assert "would isolate the node, reboot it" in decision.reason


def test_a_pool_set_to_observe_during_a_recovery_is_left_to_a_human() -> None:
    story = Story(xid(79)).isolated()
    story.policy = OBSERVE

    assert story.next().step is Step.ESCALATE


def test_mode_is_per_pool() -> None:
    policy = RecoveryPolicy(pools={"demo": PoolPolicy(mode=Mode.act)})

    assert Story(xid(79), policy=policy).next().step is Step.ISOLATE
    assert Story(xid(79, pool="other"), policy=policy).next().step is Step.CLOSE


def test_an_incident_does_not_go_on_for_ever() -> None:
    story = Story(xid(79))
    isolate = story.isolated().history.turns[0]
    story.history = replace(story.history, turns=(isolate,) * ACT.max_turns)

    assert story.next().step is Step.ESCALATE


@pytest.mark.parametrize(("step", "action"), [(Step.REBOOT, Action.REBOOT), (Step.REPLACE, Action.REPLACE)])
def test_a_destructive_step_carries_its_attempt_limit(step: Step, action: Action) -> None:
    root = xid(79) if step is Step.REBOOT else xid(74)

    decision = Story(root).isolated().next()

    assert decision.step is step
    assert [held.limit for held in decision.reserve] == [ACT.limits[action]]


@pytest.mark.parametrize("row", catalog().values(), ids=lambda row: f"{row.family}-{row.code}")
def test_every_catalog_row_leads_to_an_end_within_the_turns(row: object) -> None:
    story = Story(xid(79, family=row.family, code=row.code))  # type: ignore[attr-defined]

    for _ in range(ACT.max_turns):
        if story.next().step in (Step.CLOSE, Step.ESCALATE):
            break
        story.then(Outcome.DONE, boot_id="boot-2", facts=Isolated(is_drained=True))

    assert story.next().step in (Step.CLOSE, Step.ESCALATE)
    assert len(story.history.turns) < 8


_outcomes = st.lists(st.tuples(st.sampled_from(Outcome), st.booleans()), max_size=30)
_codes = st.sampled_from([13, 31, 45, 63, 64, 73, 74, 79, 94, 999])


@given(code=_codes, outcomes=_outcomes)
def test_whatever_happens_each_step_is_climbed_once_and_every_decision_has_a_reason(
    code: int, outcomes: list[tuple[Outcome, bool]]
) -> None:
    story = Story(xid(code))

    for outcome, is_drained in outcomes:
        if story.next().step in (Step.CLOSE, Step.ESCALATE):
            break
        story.then(outcome, boot_id="boot-2", facts=Isolated(is_drained=is_drained))

    taken = [step for step in steps_of(story) if step in ("REBOOT", "REPLACE", "ISOLATE", "RESTART_WORKLOAD")]
    assert len(taken) == len(set(taken))
    assert story.next().reason
    if {"REBOOT", "REPLACE"} & set(taken):
        assert taken[0] == "ISOLATE"


def test_every_family_has_a_way_to_a_human() -> None:
    for family in Family:
        assert Story(xid(79, family=family, code="no-such-code")).next().step is Step.ESCALATE


def test_a_double_bit_error_with_a_remap_beside_it_is_rebooted_at_once_job_or_not() -> None:
    story = Story(xid(48)).amid(job_is_running=True).reports(xid(63))

    assert story.next().step is Step.ISOLATE
    assert "with XID 63 (Row remap or page retirement recorded) beside it" in story.next().reason
    assert story.isolated().next().step is Step.REBOOT


def test_a_row_remap_lets_the_job_finish_and_then_reboots_without_restarting_it() -> None:
    story = Story(xid(63)).amid(job_is_running=True)
    assert story.next().step is Step.WAIT
    assert "then a reboot" in story.next().reason

    story.then(Outcome.DONE, "the job has ended").amid(job_is_running=False)
    story.isolated().rebooted().passed().then(Outcome.DONE)

    assert steps_of(story) == ["WAIT", "ISOLATE", "REBOOT", "DIAGNOSE", "RETURN", "CLOSE"]


def test_a_job_that_does_not_end_leaves_the_remap_to_a_human() -> None:
    story = Story(xid(63)).amid(job_is_running=True).then(Outcome.TIMED_OUT, "no news within 604800 s")

    assert story.next().step is Step.ESCALATE
    assert "a reboot is due" in story.next().reason


def test_an_application_fault_during_the_wait_restarts_the_job_and_the_wait_goes_on() -> None:
    story = Story(xid(63)).amid(job_is_running=True).then(Outcome.DONE, "there is news").reports(xid(31))
    story.then(Outcome.DONE, "llama restarted", finished_at=later(60))
    assert steps_of(story) == ["WAIT", "RESTART_WORKLOAD", "WAIT"]

    story.then(Outcome.DONE, "there is news").reports(xid(31, event_id="next run", observed_at=later(90)))
    assert story.next().step is Step.RESTART_WORKLOAD

    story.then(Outcome.DONE, "llama restarted", finished_at=later(120)).then(Outcome.DONE).amid(job_is_running=False)
    assert story.next().step is Step.ISOLATE
    assert story.next().fault.startswith("XID 63")


def test_a_riddle_during_the_wait_tells_the_human_of_the_remap_too() -> None:
    story = Story(xid(63)).amid(job_is_running=True).then(Outcome.DONE, "there is news").reports(xid(999))

    assert story.next().step is Step.ESCALATE
    assert "with XID 63 (Row remap or page retirement recorded) beside it" in story.next().reason


def test_a_contained_error_restarts_the_job_until_the_gpu_repeats_it() -> None:
    before = [seen(94, NODE, job, observed_at=NOW - timedelta(hours=n)) for n, job in ((2, "a"), (5, "b"))]

    assert Story(xid(94)).amid(observations=tuple(before[:1])).next().step is Step.RESTART_WORKLOAD
    repeated = Story(xid(94)).amid(observations=tuple(before)).next()
    assert repeated.step is Step.ISOLATE
    assert "3 times in 24 h on the same accelerator" in repeated.reason


@pytest.mark.parametrize("times", [1, 3])
def test_a_context_switch_timeout_reboots_when_it_is_repeated(times: int) -> None:
    before = tuple(seen(109, NODE, observed_at=NOW - timedelta(hours=n)) for n in range(1, times))

    decision = Story(xid(109)).amid(observations=before).next()

    assert decision.step is (Step.RESTART_WORKLOAD if times == 1 else Step.ISOLATE)


def test_a_riddle_beside_an_application_fault_goes_to_a_human_after_the_restart() -> None:
    story = Story(xid(31)).reports(xid(999)).then(Outcome.DONE, "llama restarted")

    assert story.next().step is Step.ESCALATE
    assert "XID 999" in story.next().reason


_CODES = st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 109, 119, 154, 999])
_EVENTS = st.lists(st.tuples(_CODES, st.integers(0, 900), st.sampled_from(["b9", "ba"])), min_size=1, max_size=12)


@settings(max_examples=200)
@given(events=_EVENTS, seed=st.integers(0, 2**16), copies=st.integers(0, 3))
def test_neither_order_nor_duplicates_change_a_decision(events: list[Any], seed: int, copies: int) -> None:
    reported = [
        xid(code, event_id=f"e{n}", observed_at=later(at), component=f"0000:{gpu}:00.0")
        for n, (code, at, gpu) in enumerate(events)
    ]
    shuffled = reported + reported[:copies]
    random.Random(seed).shuffle(shuffled)
    story = Story(reported[0])
    story.history = replace(story.history, events=tuple(reported))
    other = replace(story.history, events=tuple(shuffled))

    first, second = decide(Situation(story.history, ACT), NOW), decide(Situation(other, ACT), NOW)

    assert first.model_copy(update={"events_seen": 0}) == second.model_copy(update={"events_seen": 0})
    assert first.reason


def test_what_was_reported_in_the_moment_of_the_passed_diagnostics_counts() -> None:
    healthy_since = NOW - timedelta(hours=1)
    story = Story(xid(79)).amid(healthy_since=healthy_since).reports(xid(74, observed_at=healthy_since))

    assert story.isolated().next().step is Step.REPLACE


@pytest.mark.parametrize(
    ("first", "second"),
    [(("z", 10), ("a", 20)), (("a", 10), ("z", 10))],
    ids=["the earlier one", "of the same moment the one that sorts first"],
)
def test_the_first_fault_of_the_new_boot_is_named(first: tuple[str, int], second: tuple[str, int]) -> None:
    story = Story(xid(79)).isolated().rebooted()
    for code, (event_id, seconds) in ((48, second), (74, first)):
        story.reports(xid(code, event_id=event_id, boot_id="boot-2", observed_at=later(seconds)))

    assert "the reboot did not help (XID 74" in story.next().reason


def test_a_pools_own_diagnostics_level_wins() -> None:
    policy = with_policy(pools={"demo": {"mode": "act", "diagnostics_level": 4}})

    assert Story(xid(79), policy=policy).isolated().rebooted().next().diagnostics_level == 4


@pytest.mark.parametrize(
    ("event", "ladder", "step"),
    [
        (xid(63), ["OBSERVE"], Step.CLOSE),
        (xid(79, family=Family.host, code="scheduled_event", verdict=Verdict.DEGRADED), None, Step.WAIT),
    ],
    ids=["nothing comes after it", "a ladder of two escalation steps"],
)
def test_a_job_is_waited_for_where_a_second_step_waits_too(
    event: HealthEvent, ladder: list[str] | None, step: Step
) -> None:
    fault = f"{event.family}/{event.code}"
    rule = {"fault": fault, "ladder": ladder, "next_rung": "job_end", "why": "so it is here"}
    policy = with_policy(overrides=[rule] if ladder else [])

    assert Story(event, policy=policy).amid(job_is_running=True).next().step is step


def test_a_restart_that_failed_is_not_repeated_for_a_later_fault() -> None:
    story = Story(xid(31)).then(Outcome.FAILED, "rank 1 died")

    assert story.reports(xid(31, event_id="again", observed_at=later(60))).next().step is Step.ESCALATE


@pytest.mark.parametrize(("ladder", "step"), [(["OBSERVE"], Step.CLOSE), (["OBSERVE", "REBOOT"], Step.WAIT)])
def test_after_a_restart_a_job_is_waited_for_where_a_second_step_waits(ladder: list[str], step: Step) -> None:
    rule = {"fault": "xid/63", "ladder": ladder, "next_rung": "job_end", "why": "so it is here"}
    story = Story(xid(31), policy=with_policy(overrides=[rule])).amid(job_is_running=True).reports(xid(63))

    assert story.then(Outcome.DONE, "llama restarted").next().step is step


def test_the_riddle_that_is_handed_over_is_the_one_that_is_named() -> None:
    story = Story(xid(31)).reports(xid(92)).reports(xid(999)).then(Outcome.DONE, "llama restarted")

    assert "but XID 999 beside it needs a human" in story.next().reason


def test_each_step_of_a_recovery_says_why_it_is_taken() -> None:
    story = Story(xid(79)).isolated().rebooted()
    prove = story.next().reason
    back = story.passed().next().reason
    restart = story.then(Outcome.DONE).next().reason
    ended = story.then(Outcome.DONE, "llama runs again").next().reason

    assert prove.startswith("it is back with a new boot id")
    assert back.startswith("proven by a new boot id and passed diagnostics")
    assert restart.endswith("on the same nodes")
    assert ended == "XID 79 (GPU has fallen off the bus): rebooted; diagnostics passed; llama runs again"


def test_a_swap_restarts_the_job_in_the_spares_place() -> None:
    assert f"with {SPARE} in place of" in Story(xid(74)).isolated().swapped().passed().next().reason


def test_a_job_whose_restart_failed_counts_as_stopped() -> None:
    story = Story(xid(31)).then(Outcome.FAILED, "rank 1 died")

    assert Situation(story.history, ACT).has_stopped_job is True


def test_an_application_fault_without_a_job_of_ours_has_nothing_to_restart() -> None:
    assert Story(xid(31), job=None).next().ending is Ending.OBSERVED_ONLY


def test_a_pool_set_to_observe_after_a_restart_is_left_to_a_human() -> None:
    story = Story(xid(31)).then(Outcome.FAILED)
    story.policy = OBSERVE

    assert story.next().step is Step.ESCALATE


def test_a_ladder_without_a_step_ends_with_a_human_and_an_isolated_node() -> None:
    isolate = Override(fault="xid/79", ladder=(Action.ISOLATE,), why="we look at these ourselves")
    policy = ACT.model_copy(update={"overrides": (isolate,)})

    assert Story(xid(79), policy=policy).isolated().next().step is Step.ESCALATE


def test_a_fault_on_the_new_boot_is_not_even_diagnosed() -> None:
    again = xid(79, event_id="again", boot_id="boot-2")

    assert Story(xid(79)).isolated().rebooted().reports(again).next().step is Step.REPLACE


def test_a_new_machine_takes_the_broken_ones_place_and_only_a_spare_leaves_one_to_a_human() -> None:
    spare = Story(xid(74), job=None).isolated().swapped().passed()
    new = Story(xid(74), job=None).isolated().renewed().passed()

    assert spare.next().ending is Ending.HANDED_TO_A_HUMAN
    assert (new.next().step, new.next().node_id) == (Step.RETURN, SPARE)
    assert new.then(Outcome.DONE, "it serves").next().ending is Ending.RECOVERED


def test_a_new_machine_that_cannot_serve_is_for_a_human() -> None:
    new = Story(xid(74), job=None).isolated().renewed().passed().then(Outcome.REFUSED, "it belongs to nobody")

    assert new.next().ending is Ending.HANDED_TO_A_HUMAN


def test_a_diagnosis_carries_the_level_of_the_policy_and_no_other_step_does() -> None:
    story = Story(xid(79)).isolated()

    assert (story.next().diagnostics_level, story.rebooted().next().diagnostics_level) == (None, ACT.diagnostics_level)


def test_a_fault_before_the_return_is_no_failure_after_it() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().reports(later_fault(boot_id="boot-2"))

    assert story.next().escalation is not Escalation.FAILED_AFTER_RETURN


def test_what_a_new_node_comes_to_is_said_of_it() -> None:
    """Where it cannot be isolated nothing is wrong with it, and where it passes it may serve."""
    refused = Story(new_node(), job=None).then(Outcome.REFUSED, "no slot is free").next()
    passed = Story(new_node(), job=None).isolated().passed().then(Outcome.DONE).next()

    assert (refused.ending, "it was not diagnosed: no slot is free" in refused.reason) == (Ending.OBSERVED_ONLY, True)
    assert passed.reason.endswith("diagnostics passed; it may serve")


REMAP = 63


def test_a_job_that_its_own_fault_has_killed_is_a_humans_where_it_cannot_be_restarted() -> None:
    """Beside what would have let it finish first."""
    story = Story(xid(REMAP)).reports(xid(31, event_id="its own")).amid(job_is_running=True)
    story = story.then(Outcome.DONE, "llama runs again").then(Outcome.DONE, "it has ended").amid(job_is_running=False)
    story = story.isolated().rebooted().passed().then(Outcome.DONE, "it serves")
    due = story.next().step

    ended = story.then(Outcome.REFUSED, "10 of 10 are spent").next()

    assert due is Step.RESTART_WORKLOAD
    assert (ended.ending, ended.escalation) == (Ending.HANDED_TO_A_HUMAN, Escalation.JOB_NOT_RESTARTED)


def test_a_one_step_ladder_that_climbs_when_repeated_goes_to_a_human() -> None:
    rule = {"fault": "xid/92", "ladder": ["OBSERVE"], "next_rung": "repeated", "why": "three are too many"}
    hours_ago = tuple(seen(92, A, None, observed_at=later(-n * HOUR)) for n in (1, 2, 3))

    story = Story(xid(92), job=None, policy=with_policy(overrides=[rule])).amid(observations=hours_ago)

    assert story.next().step is Step.ESCALATE


def test_a_row_remap_that_follows_a_harmless_line_still_waits_for_its_job() -> None:
    harmless = xid(92)
    remap = xid(REMAP, observed_at=later(1))

    assert Story(harmless).amid(job_is_running=True).reports(remap).next().step is Step.WAIT


@pytest.mark.parametrize(
    ("code", "job", "step"),
    [(999, "llama", Step.ESCALATE), (REMAP, "llama", Step.WAIT), (999, None, Step.ESCALATE)],
    ids=["a riddle", "a remap", "a riddle without a job"],
)
def test_a_restart_that_is_not_ours_does_not_close_what_was_reported_beside_it(
    code: int, job: str | None, step: Step
) -> None:
    story = Story(xid(31), job=job).amid(job_is_running=True, observations=(seen(31, observed_at=later(-1)),))

    assert story.reports(xid(code, observed_at=later(1))).next().step is step


def test_a_job_that_its_own_fault_killed_is_restarted_although_a_remap_is_seen_to_first() -> None:
    story = Story(xid(31)).amid(job_is_running=False).reports(xid(REMAP, observed_at=later(1)))

    for result in ({"facts": Isolated(is_drained=True)}, {"boot_id": "boot-2"}, {}, {}):
        story.then(Outcome.DONE, **result)

    assert steps_of(story)[:4] == ["ISOLATE", "REBOOT", "DIAGNOSE", "RETURN"]
    assert story.next().step is Step.RESTART_WORKLOAD


def test_neither_order_nor_duplicates_change_a_decision_after_a_reboot() -> None:
    new = {"boot_id": "boot-2"}
    events = [
        xid(154, event_id="b", observed_at=later(11), subcode="DRAIN_P2P", **new),
        xid(79, event_id="c", observed_at=later(400), **new),
        xid(79, event_id="d", observed_at=later(12), **new),
    ]
    story = Story(xid(79)).isolated().rebooted()
    said = set()
    for seed in range(24):
        random.Random(seed).shuffle(events)
        history = replace(story.history, events=(*story.history.events, *events))
        said.add(decide(Situation(history, ACT), NOW).model_dump_json())

    assert len(said) == 1


def test_a_job_that_had_ended_by_itself_is_not_restarted_because_another_of_its_nodes_fails_later() -> None:
    story = Story(xid(REMAP)).amid(job_is_running=False).isolated().rebooted().passed().then(Outcome.DONE)
    assert story.next().step is Step.CLOSE

    story.amid(job_is_running=True)  # as an open incident on another node of its last run makes it look

    assert story.next().step is Step.CLOSE


def test_a_job_that_could_not_be_restarted_is_told_although_its_node_is_given_back_by_then() -> None:
    story = Story(xid(74)).isolated().swapped().passed().then(Outcome.FAILED, "its image is gone")

    decision = story.amid(is_released_or_retired=True).next()

    assert decision.escalation is Escalation.JOB_NOT_RESTARTED
    assert "llama is down" in decision.reason


def test_a_fault_after_the_return_goes_to_a_human_and_to_no_further_step() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE, "back in service")

    decision = story.reports(xid(79, event_id="again", boot_id="boot-2")).next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "when it was back in service already" in decision.reason


def test_a_policy_that_wants_evidence_from_now_on_asks_for_none_of_a_node_that_was_rebooted() -> None:
    story = Story(xid(79)).isolated().rebooted().failed()
    story.policy = with_policy(evidence={"enabled": True})

    assert story.next().step is Step.REPLACE


def test_a_new_machine_that_did_not_come_into_service_is_told_to_a_human_before_the_job_is_started() -> None:
    story = Story(xid(74)).isolated().renewed().passed().then(Outcome.REFUSED, "it belongs to nobody")

    decision = story.next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "it is not in service: it belongs to nobody" in decision.reason
