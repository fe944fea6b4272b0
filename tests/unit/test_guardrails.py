"""What holds nodeheal back, as the core decides it: approvals, breaker, full budgets, pauses, capacity, old news."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeheal.contract.names import DRILL_MARK, OPERATOR_REQUEST
from nodeheal.contract.results import Isolated, Refused, StepResult
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Confirmation,
    Ending,
    Escalation,
    Family,
    Outcome,
    Refusal,
    Step,
)
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Evidence, MaintenanceWindow, Mode, PoolPolicy, Weekday
from nodeheal.domain.recovery.confirmation import ANSWER_MARGIN_SECONDS
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.decision_context import Observation, node_scope
from nodeheal.domain.recovery.guardrails import stale
from nodeheal.domain.recovery.progress import Progress
from tests.support.builders import ACT, NOW, xid
from tests.support.guardrails import APPROVE, OPEN, PAUSED, full, no_capacity, waited
from tests.support.observations import NODE, OTHER, crowd, later, later_fault, wave
from tests.support.pauses import pause_of_pool
from tests.support.policies import with_policy
from tests.support.recovery_story import Story
from tests.support.steps import result

# Approval ------------------------------------------------------------------------------------------------------------


def test_a_yes_lets_the_recovery_begin_and_goes_for_the_step_that_was_asked_for() -> None:
    story = waited(Story(xid(79), policy=APPROVE), Outcome.DONE, "approved by ada")

    assert story.next().step is Step.ISOLATE
    assert story.isolated().next().step is Step.REBOOT


def test_a_yes_to_a_reboot_is_none_to_a_replacement() -> None:
    story = waited(Story(xid(79), policy=APPROVE), Outcome.DONE).isolated().rebooted().failed()

    decision = story.next()

    assert (decision.awaits, decision.action) == (Awaited.APPROVAL, Action.REPLACE)
    assert (
        "would go on with a replacement, because the reboot did not help (diagnostics failed: pcie)." in decision.reason
    )
    assert waited(story, Outcome.DONE).next().step is Step.REPLACE


NO_REBOOT = {(node_scope(xid().node_id), Action.REBOOT): 1}
NOTHING = {**NO_REBOOT, (node_scope(xid().node_id), Action.REPLACE): 1}
SPENT = "because 1 of 1 reboots in 24 h are spent"


def test_where_no_reboot_is_left_the_question_is_about_what_follows_and_is_asked_once() -> None:
    story = Story(xid(79), policy=APPROVE).amid(spent=NO_REBOOT)

    asked = story.next()

    assert (asked.awaits, asked.action) == (Awaited.APPROVAL, Action.REPLACE)
    assert f"nodeheal would isolate the node and replace it, {SPENT}. " in asked.reason
    assert waited(story, Outcome.DONE).isolated().next().step is Step.REPLACE


def test_where_the_reboot_is_spent_after_the_yes_the_second_question_says_so() -> None:
    story = waited(Story(xid(79), policy=APPROVE), Outcome.DONE).isolated().amid(spent=NO_REBOOT)

    assert story.next().awaits is Awaited.APPROVAL
    assert f"nodeheal would go on with a replacement, {SPENT}. " in story.next().reason


@pytest.mark.parametrize(
    ("modes", "spent"), [({}, NOTHING), ({"REPLACE": "observe"}, NO_REBOOT)], ids=["nothing left", "observed"]
)
def test_where_nothing_may_follow_the_question_is_about_an_isolation(modes: dict[str, str], spent: Any) -> None:
    policy = with_policy(default_pool={"mode": "approve", "modes": modes})
    story = Story(xid(79), policy=policy).amid(spent=spent)

    assert story.next().action is Action.ISOLATE
    assert f"nodeheal would isolate the node and ask a human, {SPENT}" in story.next().reason
    assert waited(story, Outcome.DONE).isolated().next().step is Step.ESCALATE


def test_a_pool_that_asks_before_a_reboot_asks_where_a_replacement_follows_unasked() -> None:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REBOOT": "approve"}})

    asked = Story(xid(79), policy=policy).amid(spent=NO_REBOOT).next()

    assert (asked.awaits, asked.action) == (Awaited.APPROVAL, Action.REPLACE)


RESERVED = {"has_reserved_capacity": True}
SRAM = xid(family=Family.neuron, code="SRAM_UNCORRECTABLE_ERROR", component="neuron3")


def test_capacity_that_was_bought_ahead_is_kept_by_a_reboot_and_given_up_only_by_a_persons_word() -> None:
    plain = Story(SRAM).isolated()
    story = Story(SRAM).isolated().amid(**RESERVED)

    assert (plain.next().step, story.next().step) == (Step.REPLACE, Step.REBOOT)

    asked = story.rebooted().failed().next()

    assert (asked.step, asked.awaits, asked.action) == (Step.WAIT, Awaited.APPROVAL, Action.REPLACE)
    assert "its capacity was bought ahead: a reservation may give the same host again, and a capacity" in asked.reason
    assert waited(story, Outcome.DONE, "approved by ada").next().step is Step.REPLACE


def test_a_yes_from_before_the_isolation_does_not_give_capacity_up() -> None:
    story = waited(Story(SRAM, policy=APPROVE), Outcome.DONE, "approved by ada")
    story.then(Outcome.DONE, facts=Isolated(is_drained=True), finished_at=NOW + timedelta(seconds=1))
    story.answers(Confirmation.CONFIRMED).amid(**RESERVED, spent=NO_REBOOT)

    decision = story.next()

    assert (decision.awaits, decision.action) == (Awaited.APPROVAL, Action.REPLACE)


def test_a_replacement_that_an_operator_requests_is_not_asked_about_again() -> None:
    wanted = xid(family=Family.host, code=OPERATOR_REQUEST, subcode="REPLACE", component=None)

    story = Story(wanted).then(Outcome.DONE, facts=Isolated(is_drained=True)).amid(**RESERVED)

    assert story.next().step is Step.REPLACE


def test_a_yes_that_is_annulled_goes_to_a_human_whatever_it_was_for() -> None:
    story = waited(Story(xid(79), policy=APPROVE).amid(spent=NO_REBOOT), Outcome.DONE, "approved by ada")

    decision = story.amid(spent={}, pauses=pause_of_pool()).next()

    assert decision.escalation is Escalation.RECOVERY_BLOCKED
    assert "approved by ada, but pool demo is paused" in decision.reason


def test_what_is_only_observed_is_told_with_what_would_really_follow() -> None:
    policy = with_policy(default_pool={"mode": "observe"})

    reason = Story(xid(79), policy=policy).amid(spent=NO_REBOOT).next().reason

    assert reason.endswith(f"in act mode nodeheal would isolate the node and replace it, {SPENT}")


@pytest.mark.parametrize(
    ("outcome", "reason", "told"),
    [
        (Outcome.REFUSED, "refused by ada: it trains until Monday", "refused by ada: it trains until Monday"),
        (Outcome.TIMED_OUT, "nobody answered within 3600 s", "nobody has approved it: no answer means no"),
    ],
)
def test_a_no_and_silence_go_to_a_human_with_nothing_touched(outcome: Outcome, reason: str, told: str) -> None:
    decision = waited(Story(xid(79), policy=APPROVE), outcome, reason).next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert told in decision.reason


def test_the_question_is_due_when_the_policy_says() -> None:
    policy = with_policy(default_pool={"mode": "approve"}, deadlines={"approval_seconds": 77})

    assert Story(xid(79), policy=policy).next().deadline_seconds == 77


def test_what_would_restart_a_job_is_told_as_that() -> None:
    reason = Story(xid(31), policy=with_policy(default_pool={"mode": "observe"})).next().reason

    assert reason.endswith("in act mode nodeheal would restart the job")


# Budget --------------------------------------------------------------------------------------------------------------


def test_a_full_budget_is_waited_for_in_line() -> None:
    decision = full(Story(xid(79))).next()

    assert (decision.step, decision.awaits, decision.action) == (Step.WAIT, Awaited.BUDGET, Action.REBOOT)
    assert "Waiting in line for a slot" in decision.reason


def test_when_its_turn_has_come_it_tries_again() -> None:
    story = waited(full(Story(xid(79))), Outcome.DONE)
    assert story.next().step is Step.ISOLATE

    story = waited(full(story), Outcome.DONE).isolated()

    assert story.next().step is Step.REBOOT


def test_all_its_waits_in_line_together_last_as_long_as_the_policy_says() -> None:
    story = full(Story(xid(79)))
    story.now = NOW + timedelta(hours=23)

    assert story.next().deadline_seconds == 3_600
    story.now = NOW + timedelta(hours=24)
    assert story.next().ending is Ending.HANDED_TO_A_HUMAN


def test_a_line_that_did_not_move_in_time_is_left_for_a_human() -> None:
    decision = waited(full(Story(xid(79))), Outcome.TIMED_OUT).next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "no slot was free in 24 h" in decision.reason


def test_an_isolation_that_was_refused_for_another_reason_is_for_a_human() -> None:
    decision = Story(xid(79)).then(Outcome.REFUSED, "it belongs to incident inc-9").next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN


def test_a_fault_that_is_on_an_old_boot_when_its_turn_comes_is_dropped() -> None:
    story = waited(full(Story(xid(79))), Outcome.DONE).amid(boot_id="boot-2")

    assert story.next().ending is Ending.OBSERVED_ONLY
    assert "has rebooted since" in story.next().reason


def test_a_fault_from_before_passed_diagnostics_is_dropped_when_its_turn_comes() -> None:
    story = waited(full(Story(xid(79))), Outcome.DONE).amid(healthy_since=NOW + timedelta(seconds=1))

    assert story.next().ending is Ending.OBSERVED_ONLY
    assert "passed its diagnostics since" in story.next().reason


# Breaker -------------------------------------------------------------------------------------------------------------


def test_an_open_breaker_holds_every_fault_of_the_pool_back_and_is_one_page() -> None:
    one = Story(xid(79)).amid(pool=OPEN).next()
    other = Story(xid(74, node_id="mi-0other")).amid(pool=OPEN).next()

    assert (one.awaits, other.awaits) == (Awaited.BREAKER, Awaited.BREAKER)
    assert one.page_key == other.page_key == "breaker/demo/2026-03-01T03:00:00"
    assert "rack r7" in one.reason
    assert one.reason.endswith("nothing more is isolated, rebooted or replaced until a human resets the breaker")


def test_an_open_breaker_stops_the_next_step_of_a_node_that_is_isolated() -> None:
    decision = Story(xid(79)).isolated().amid(pool=OPEN).next()

    assert decision.awaits is Awaited.BREAKER
    assert "stays isolated" in decision.reason


def test_a_node_that_has_passed_its_diagnostics_is_given_back_although_the_breaker_is_open() -> None:
    story = Story(xid(79)).isolated().rebooted().passed()

    assert story.amid(pool=OPEN).next().step is Step.RETURN


def test_an_application_fault_is_restarted_although_the_breaker_is_open() -> None:
    assert Story(xid(31)).amid(pool=OPEN).next().step is Step.RESTART_WORKLOAD


def reset(story: Story, after_seconds: int) -> Story:
    at = NOW + timedelta(seconds=after_seconds)
    return waited(story, Outcome.DONE).amid(pool=OPEN.reset("looked at", at))


@pytest.mark.parametrize(("after_seconds", "step"), [(600, Step.ISOLATE), (601, Step.CLOSE)])
def test_what_is_old_when_the_breaker_is_reset_is_dropped_and_not_run(after_seconds: int, step: Step) -> None:
    decision = reset(Story(xid(79)).amid(pool=OPEN), after_seconds).next()

    assert decision.step is step


def test_what_failed_before_the_reset_does_not_trip_it_again() -> None:
    story = Story(xid(79)).amid(
        pool=OPEN.reset("looked at", NOW + timedelta(seconds=60)), observations=crowd(5), pool_nodes=10
    )

    assert story.next().step is Step.ISOLATE


def test_an_isolated_node_goes_on_after_the_reset_however_long_it_took() -> None:
    story = reset(Story(xid(79)).isolated().amid(pool=OPEN), 5_000)

    assert story.next().step is Step.REBOOT


def test_a_breaker_that_nobody_resets_leaves_each_incident_to_a_human_with_one_page() -> None:
    decision = waited(Story(xid(79)).amid(pool=OPEN), Outcome.TIMED_OUT).next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert decision.page_key == "breaker/demo/2026-03-01T03:00:00/overdue"


def test_a_drill_that_nobody_resets_in_time_does_not_swallow_the_page_of_a_real_fault() -> None:
    drill = waited(Story(xid(79, evidence=DRILL_MARK)).amid(pool=OPEN), Outcome.TIMED_OUT).next()

    assert drill.page_key == "breaker/demo/2026-03-01T03:00:00/overdue/drill"


def test_a_storm_that_is_only_observed_is_one_email() -> None:
    policy = with_policy(default_pool={"mode": "observe"})

    decision = Story(xid(79), policy=policy).amid(observations=crowd(5), pool_nodes=10).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert decision.page_key is not None


# Pauses --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", PAUSED.values(), ids=PAUSED)
def test_a_pause_holds_back_what_has_not_begun(around: dict[str, object]) -> None:
    decision = Story(xid(79)).amid(**around).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert decision.is_held_back
    assert "is paused until 2026-03-01 05:00 UTC (new driver); otherwise nodeheal would isolate" in decision.reason


@pytest.mark.parametrize("around", PAUSED.values(), ids=PAUSED)
def test_a_pause_stops_a_recovery_in_the_middle(around: dict[str, object]) -> None:
    decision = Story(xid(79)).isolated().amid(**around).next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "stays isolated" in decision.reason


@pytest.mark.parametrize("around", PAUSED.values(), ids=PAUSED)
def test_a_pause_that_is_over_holds_nothing_back(around: dict[str, object]) -> None:
    story = Story(xid(79)).amid(**around)
    story.now = NOW + timedelta(hours=2)

    assert story.next().step is Step.ISOLATE


# Capacity ------------------------------------------------------------------------------------------------------------


def test_no_capacity_is_waited_out_longer_each_time_and_then_a_human_hears_what_is_missing() -> None:
    story, waits = Story(xid(74)).isolated(), []

    for _ in range(3):
        story = no_capacity(story)
        waits.append(story.next().deadline_seconds)
        story = waited(story, Outcome.TIMED_OUT)
    decision = no_capacity(story).next()

    assert waits == [120, 240, 480]
    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "no p5.48xlarge in use1-az4), tried 4 times; the broken node is held, isolated" in decision.reason


def test_another_wait_is_none_for_capacity() -> None:
    story = waited(no_capacity(Story(xid(74)).isolated()).amid(pool=OPEN), Outcome.DONE)

    assert story.amid(pool=Pool("demo")).next().awaits is Awaited.CAPACITY


# Stable --------------------------------------------------------------------------------------------------------------


def test_a_rebooted_node_must_run_for_a_while_before_it_is_back() -> None:
    policy = ACT.model_copy(update={"stable_seconds": 120})
    story = Story(xid(79), policy=policy).isolated().rebooted().passed()
    story.now = NOW + timedelta(seconds=30)

    decision = story.next()

    assert (decision.awaits, decision.deadline_seconds) == (Awaited.STABLE, 91)
    story.now = NOW + timedelta(seconds=120)
    assert story.next().step is Step.RETURN


def test_a_pool_says_since_when_it_is_tripped_and_stays_with_the_first_reason() -> None:
    tripped = Pool("demo").tripped("rack r7", NOW)

    assert tripped.tripped("rack r8", NOW + timedelta(seconds=9)) == tripped
    assert replace(tripped.reset("", NOW), version=0) == Pool("demo", breaker_reset_at=NOW)


# Evidence ------------------------------------------------------------------------------------------------------------

SAVING = ACT.model_copy(update={"evidence": Evidence(seconds=77)})


def test_what_a_node_can_tell_is_saved_once_before_it_is_touched() -> None:
    story = Story(xid(79), policy=SAVING).isolated()

    decision = story.next()

    assert (decision.step, decision.deadline_seconds) == (Step.FREEZE_EVIDENCE, 77 + ANSWER_MARGIN_SECONDS)
    assert story.then(Outcome.DONE, "9 files saved").next().step is Step.REBOOT


def test_nothing_is_saved_where_nothing_is_to_be_done_to_the_node() -> None:
    assert Story(xid(79), policy=SAVING).next().step is Step.ISOLATE
    assert Story(xid(31), policy=SAVING).next().step is Step.RESTART_WORKLOAD


def test_a_node_that_has_fallen_silent_is_not_asked() -> None:
    silent = xid(79, family=Family.heartbeat, code="silent", subcode="confirmed", source="nodeheal.sweep")

    assert Story(silent, policy=SAVING).isolated().next().step is not Step.FREEZE_EVIDENCE


def test_a_node_that_nobody_may_go_on_with_is_not_asked_either() -> None:
    assert Story(xid(79), policy=SAVING).isolated().amid(pool=OPEN).next().awaits is Awaited.BREAKER


# What trips no breaker -----------------------------------------------------------------------------------------------


def gone(name: str, code: str) -> Observation:
    return Observation(f"e-{name}", name, NOW, Family.host, code)


def test_spot_nodes_that_are_taken_back_together_trip_nothing() -> None:
    others = tuple(gone(f"mi-spot-{n}", "spot_interruption") for n in range(12))
    spot = xid(79, family=Family.host, code="spot_interruption", source="aws.ec2")

    assert Story(spot).amid(observations=others, pool_nodes=12).next().step is Step.ISOLATE
    assert Story(xid(79)).amid(observations=others, pool_nodes=12).next().step is Step.ISOLATE


def test_nodes_that_operators_ask_about_trip_nothing() -> None:
    others = tuple(gone(f"mi-hand-{n}", "operator_request") for n in range(12))

    assert Story(xid(79)).amid(observations=others, pool_nodes=12).next().step is Step.ISOLATE


# Time that passes while something else wakes a wait -------------------------------------------------------------------

WAITING = [
    ("the job", lambda: Story(xid(63)).amid(job_is_running=True), Escalation.JOB_END_TIMEOUT),
    ("the breaker", lambda: Story(xid(79)).amid(pool=OPEN), Escalation.BREAKER_OVERDUE),
]


def woken(story: Story, after_seconds: float) -> Story:
    """Something new was reported so long after the wait began."""
    story = waited(story, Outcome.DONE)
    story.now += timedelta(seconds=after_seconds)
    return story


@pytest.mark.parametrize(
    ("what", "begun", "overdue"), WAITING, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_wakes_a_wait_gives_it_no_new_time(what: str, begun: Callable[[], Story], overdue: Escalation) -> None:
    story = begun()
    first = story.next()

    again = woken(story, 100.5).next()

    assert (again.awaits, again.due_at) == (first.awaits, first.due_at)
    assert again.deadline_seconds == first.deadline_seconds - 100
    assert woken(story, first.deadline_seconds - 101).next().deadline_seconds == 1
    assert woken(story, 1).next().escalation is overdue


def test_a_breaker_that_opens_again_is_another_wait() -> None:
    story = Story(xid(79)).amid(pool=OPEN)
    first = story.next()
    again = woken(story, 100).amid(pool=replace(OPEN, breaker_opened_at=NOW + timedelta(seconds=50))).next()

    assert again.deadline_seconds == first.deadline_seconds
    assert again.due_at == NOW + timedelta(seconds=100 + first.deadline_seconds)


def test_a_node_that_came_up_again_while_its_job_was_brought_back_is_left_alone() -> None:
    story = Story(xid(79)).amid(boot_id="boot-2")

    assert story.next().ending is Ending.OBSERVED_ONLY
    assert "has rebooted since" in story.next().reason


def came_up_again() -> Story:
    return Story(xid(79)).amid(boot_id="boot-2", is_job_broken=True)


def test_a_node_that_came_up_again_proves_itself_before_its_job_goes_on_there() -> None:
    isolated = came_up_again().then(Outcome.DONE, "drained")

    assert came_up_again().next().step is Step.ISOLATE
    assert isolated.next().step is Step.DIAGNOSE
    assert "has booted by itself since" in isolated.next().reason
    assert isolated.then(Outcome.DONE, "diagnostics passed", boot_id="boot-2").next().step is Step.RETURN


def test_a_node_that_came_up_again_and_fails_its_diagnostics_is_rebooted_from_that_boot() -> None:
    isolated = came_up_again().then(Outcome.DONE, "drained")

    decision = isolated.then(Outcome.FAILED, "diagnostics failed: memory", boot_id="boot-2").next()

    assert (decision.step, decision.boot_id) == (Step.REBOOT, "boot-2")


def test_what_the_node_shows_on_its_next_boot_is_treated_and_not_dropped_with_the_last_ones() -> None:
    later = xid(74, event_id="later", boot_id="boot-2", observed_at=NOW + timedelta(seconds=1))
    story = Story(xid(79)).reports(later).amid(boot_id="boot-2")

    assert story.next().step is Step.ISOLATE
    assert "XID 74" in story.next().reason


def test_a_reboot_names_the_boot_that_the_fault_was_on() -> None:
    decision = Story(xid(79)).then(Outcome.DONE, "drained").next()

    assert (decision.step, decision.boot_id) == (Step.REBOOT, xid().boot_id)


def test_a_mode_per_action_holds_back_only_that_action() -> None:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REPLACE": "observe"}})

    assert Story(xid(79), policy=policy).next().step is Step.ISOLATE
    assert Story(xid(74), policy=policy).next().ending is Ending.OBSERVED_ONLY
    assert Story(xid(79), policy=policy).isolated().rebooted().failed().next().step is Step.ESCALATE


def test_a_node_that_is_opted_out_is_only_observed() -> None:
    policy = with_policy(opted_out={NODE: "lab machine"})

    assert "opted out (lab machine)" in Story(xid(79), policy=policy).next().reason
    assert Story(xid(79), policy=policy).next().ending is Ending.OBSERVED_ONLY
    assert Story(xid(79, node_id=OTHER), policy=policy).next().step is Step.ISOLATE


def test_a_pool_in_maintenance_is_only_observed() -> None:
    window = MaintenanceWindow(days=(Weekday.sunday,), starts_at="02:00", minutes=120, why="the weekly patching")
    policy = ACT.model_copy(update={"default_pool": PoolPolicy(mode=Mode.act, maintenance=(window,))})
    story = Story(xid(79), policy=policy)  # NOW is a Sunday, 03:00

    assert "in maintenance (the weekly patching)" in story.next().reason
    story.now = later(2 * 3600)
    assert story.next().step is Step.ISOLATE


def test_a_maintenance_window_may_run_past_midnight() -> None:
    window = MaintenanceWindow(days=(Weekday.saturday,), starts_at="23:00", minutes=300, why="patching")

    assert window.holds(NOW)
    assert not window.holds(later(3600))
    assert not window.holds(NOW - timedelta(hours=5))


_CODES = st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 109, 119, 154, 999])
_EVENTS = st.lists(st.tuples(_CODES, st.integers(0, 900), st.sampled_from(["b9", "ba"])), min_size=1, max_size=12)


@settings(max_examples=100)
@given(events=_EVENTS, mode=st.sampled_from([Mode.observe, Mode.approve]))
def test_no_mode_but_act_ever_touches_anything(events: list[Any], mode: Mode) -> None:
    policy = with_policy(default_pool={"mode": mode.value})
    story = Story(xid(events[0][0]), policy=policy)
    for n, (code, at, gpu) in enumerate(events):
        story.reports(xid(code, event_id=f"e{n}", observed_at=later(at), component=f"0000:{gpu}:00.0"))

    assert story.next().step in (Step.CLOSE, Step.ESCALATE, Step.WAIT)


def _milder() -> RecoveryPolicy:
    rule = {"fault": "xid/79", "ladder": ["RESTART_WORKLOAD", "REBOOT"], "why": "it is the job's here"}
    return with_policy(overrides=[rule])


def test_a_fault_that_was_put_right_after_the_isolation_leaves_the_node_to_a_human() -> None:
    story = Story(xid(79)).isolated()
    story.policy = _milder()

    assert story.next().step is Step.ESCALATE
    assert "the node is isolated, and nothing asks for that any more" in story.next().reason


def test_a_fault_that_was_put_right_after_the_whole_recovery_changes_its_ending_no_more() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.DONE, "llama runs again")
    story.policy = _milder()

    assert story.next().ending is Ending.RECOVERED


def test_a_remap_is_not_waited_for_where_the_reboot_would_be_held_back() -> None:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REBOOT": "observe"}})

    assert Story(xid(63), policy=policy).amid(job_is_running=True).next().ending is Ending.OBSERVED_ONLY


def test_where_a_reboot_needs_approval_a_remap_waits_for_its_job_and_then_asks() -> None:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REBOOT": "approve"}})
    story = Story(xid(63), policy=policy)

    waits = [story.amid(job_is_running=runs).next().awaits for runs in (True, False)]

    assert waits == [Awaited.JOB_END, Awaited.APPROVAL]


def test_an_opt_out_is_the_reason_that_is_told_in_a_pool_that_is_observed_anyway() -> None:
    policy = with_policy(default_pool={"mode": "observe"}, opted_out={NODE: "lab machine"})

    assert "opted out (lab machine)" in Story(xid(79), policy=policy).next().reason


def test_what_holds_a_recovery_back_in_the_middle_is_told() -> None:
    story = Story(xid(79)).isolated()
    story.policy = with_policy(default_pool={"mode": "act", "modes": {"REBOOT": "observe"}})
    assert "pool demo is in observe mode for a reboot; the node stays isolated" in story.next().reason

    story.policy = story.policy.model_copy(update={"opted_out": {NODE: "lab machine"}})
    assert "opted out (lab machine); the node stays isolated" in story.next().reason

    story.policy = ACT
    story.amid(observations=wave(4), pool_nodes=10)
    assert "5 nodes of the pool fail together" in story.next().reason


@pytest.mark.parametrize("seconds", [0, 100])
def test_a_fault_that_came_again_after_the_node_had_passed_is_not_dropped(seconds: int) -> None:
    story = Story(xid(79)).reports(later_fault(seconds)).amid(healthy_since=NOW + timedelta(seconds=50))
    assessment = assess_faults(story.history, ACT)
    waited = Progress(waited={Awaited.BUDGET: StepResult.model_validate(result(Step.WAIT))})

    dropped = stale(DecisionBuilder(story.history, ACT, assessment, NOW), waited, assessment)

    assert (dropped is not None) is (seconds < 50)


LATER = NOW + timedelta(hours=1)


def test_only_what_has_waited_is_dropped_for_passed_diagnostics_and_not_if_it_came_again_after_them() -> None:
    passed = NOW + timedelta(seconds=60)
    assert Story(xid(79)).amid(healthy_since=passed).next().step is Step.ISOLATE

    story = waited(full(Story(xid(79))), Outcome.DONE).amid(healthy_since=passed)

    assert story.reports(xid(79, event_id="again", observed_at=LATER)).next().step is Step.ISOLATE


def test_the_time_in_line_is_counted_from_when_it_stood_in_line() -> None:
    """A fault that let its job finish, or waited for a human, has not waited for a slot."""
    story = Story(xid(79))
    story.now = NOW + timedelta(days=3)
    story.then(Outcome.REFUSED, "full", facts=Refused(code=Refusal.BUDGET_FULL, slots=1), finished_at=story.now)

    decision = story.next()

    assert (decision.awaits, decision.deadline_seconds) == (Awaited.BUDGET, 86_400)


def test_a_yes_to_one_restart_is_none_to_the_next() -> None:
    story = waited(Story(xid(31), policy=APPROVE), Outcome.DONE, "approved by ada")
    story.then(Outcome.DONE, "llama restarted as run 2")

    decision = story.reports(xid(31, event_id="run-2", observed_at=LATER)).next()

    assert (decision.step, decision.awaits) == (Step.WAIT, Awaited.APPROVAL)


def test_a_pool_that_is_only_observed_since_a_restart_began_is_handed_over() -> None:
    story = Story(xid(31)).then(Outcome.DONE, "llama restarted as run 2")
    story.policy = with_policy(default_pool={"mode": "observe"})

    decision = story.reports(xid(31, event_id="run-2", observed_at=LATER)).next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "since the recovery began" in decision.reason
