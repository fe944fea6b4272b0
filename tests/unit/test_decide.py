"""The decision core, told as stories: what has happened so far, and what comes next."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.results import Isolated
from nodeheal.contract.vocabulary import Action, Confirmation, Ending, Escalation, Family, Outcome, Step
from nodeheal.domain.faults.catalog import catalog
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode, PoolPolicy
from nodeheal.domain.recovery.decide import decide
from tests.support.builders import ACT, NOW, xid
from tests.support.recovery_story import OBSERVE, SPARE, Story, steps_of


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


def test_a_secondary_fault_on_the_new_boot_does_not_speak_against_the_reboot() -> None:
    echo = xid(45, event_id="echo", boot_id="boot-2")

    assert Story(xid(79)).isolated().rebooted().passed().reports(echo).next().step is Step.RETURN


def test_a_fault_of_the_old_boot_does_not_speak_against_the_reboot() -> None:
    late = xid(79, event_id="late", boot_id="boot-1")

    assert Story(xid(79)).isolated().rebooted().passed().reports(late).next().step is Step.RETURN


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
        decision = decide(history, ACT, NOW)
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


def test_a_reboot_that_the_ledger_refuses_leads_to_the_next_step() -> None:
    story = Story(xid(79)).isolated().then(Outcome.REFUSED, "1 of 1 reboots in 24 h are spent")

    assert story.answers(Confirmation.CONFIRMED).next().step is Step.REPLACE


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


def test_a_full_budget_leaves_the_node_alone() -> None:
    story = Story(xid(79)).then(Outcome.REFUSED, "the disruption budget of pool demo is full: 1 of 1")

    assert story.next().step is Step.ESCALATE
    assert "budget" in story.next().reason


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
