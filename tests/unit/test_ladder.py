"""Which step is next: what the node's own past has used up, and what an attempt is reserved for."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeheal.contract.results import Isolated
from nodeheal.contract.vocabulary import Action, Outcome, Step
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Override
from nodeheal.domain.recovery.decision_context import accelerator_scope, node_scope
from tests.support.builders import ACT, NOW, xid
from tests.support.observations import NODE, recoveries
from tests.support.policies import with_policy
from tests.support.recovery_story import Story


def test_the_third_incident_in_a_week_marks_a_lemon_which_is_replaced_and_not_rebooted() -> None:
    story = Story(xid(79)).amid(recoveries=recoveries(2, 5)).isolated()

    assert story.next().step is Step.REPLACE
    assert f"{NODE} is a lemon: 3 incidents in 7 days" in story.next().reason


@pytest.mark.parametrize("past", [(2,), (2, 8)])
def test_two_incidents_or_an_old_one_mark_no_lemon(past: tuple[int, ...]) -> None:
    assert Story(xid(79)).amid(recoveries=recoveries(*past)).isolated().next().step is Step.REBOOT


def test_a_lemon_may_be_kept_out_instead() -> None:
    policy = RecoveryPolicy.model_validate({**ACT.model_dump(), "lemon": {"action": "ISOLATE"}})
    story = Story(xid(79), policy=policy).amid(recoveries=recoveries(1, 2)).isolated()

    assert story.next().step is Step.ESCALATE
    assert "lemon" in story.next().reason


def test_a_lemons_application_fault_is_still_the_applications() -> None:
    assert Story(xid(31)).amid(recoveries=recoveries(1, 2)).next().step is Step.RESTART_WORKLOAD


def test_a_reboot_that_the_window_has_seen_is_not_offered_again() -> None:
    story = Story(xid(79)).amid(spent={(node_scope(NODE), Action.REBOOT): 1}).isolated()

    assert story.next().step is Step.REPLACE
    assert story.next().reason == "1 of 1 reboots in 24 h are spent; next is a replacement"


def test_an_accelerators_serial_carries_its_past_into_another_node() -> None:
    story = Story(xid(79, component_serial="S/1"))
    story.amid(spent={(accelerator_scope("S/1"), Action.REBOOT): 2}).isolated()

    assert story.next().step is Step.REPLACE
    assert "2 of 2 reboots of accelerator S/1 in 168 h are spent" in story.next().reason


def test_a_destructive_step_reserves_for_the_node_and_the_accelerator() -> None:
    decision = Story(xid(79, component_serial="S1")).isolated().next()

    assert [held.scope for held in decision.reserve] == [node_scope(NODE), accelerator_scope("S1")]


def test_the_ladder_never_goes_down_within_a_window() -> None:
    story = Story(xid(79)).amid(spent={(node_scope(NODE), Action.REPLACE): 1}).isolated()

    assert story.next().step is Step.ESCALATE
    assert "so a reboot is not tried again" in story.next().reason


def test_flapping_between_codes_climbs_one_ladder() -> None:
    story = Story(xid(79)).isolated().rebooted().reports(xid(74, event_id="flap"))

    assert story.failed().next().step is Step.REPLACE
    assert story.then(Outcome.REFUSED, "no spare").reports(xid(48, event_id="flop")).next().step is Step.ESCALATE


_CODES = st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 109, 119, 154, 999])


@settings(max_examples=150)
@given(
    codes=st.lists(_CODES, min_size=1, max_size=6),
    outcomes=st.lists(st.sampled_from(Outcome), max_size=24),
    spent=st.dictionaries(st.sampled_from([Action.REBOOT, Action.REPLACE]), st.integers(0, 2)),
)
def test_the_ladder_only_goes_up_and_no_attempt_exceeds_its_limit(
    codes: list[int], outcomes: list[Outcome], spent: dict[Action, int]
) -> None:
    story = Story(xid(codes[0])).amid(spent={(node_scope(NODE), action): count for action, count in spent.items()})
    for n, code in enumerate(codes[1:]):
        story.reports(xid(code, event_id=f"e{n}"))

    for outcome in outcomes:
        decision = story.next()
        if decision.ending is not None:
            break
        for held in decision.reserve:
            count = story.history.context.spent.get((held.scope, held.limit.group), 0)
            assert count < held.limit.limit or held.limit.group is Action.RESTART_WORKLOAD
            grown = {**story.history.context.spent, (held.scope, held.limit.group): count + 1}
            story.amid(spent=grown)
        story.then(outcome, boot_id=f"boot-{len(story.history.turns)}", facts=Isolated(is_drained=True))

    taken = [
        turn.decision.action for turn in story.history.turns if turn.decision.action in (Action.REBOOT, Action.REPLACE)
    ]
    assert taken in ([], [Action.REBOOT], [Action.REPLACE], [Action.REBOOT, Action.REPLACE])
    assert story.next().reason


def test_an_override_is_refused_where_its_ladder_goes_down() -> None:
    with pytest.raises(ValueError, match="does not go up"):
        Override(fault="xid/79", ladder=(Action.REPLACE, Action.REBOOT), why="upside down")


HOUR, DAY = 3_600, 86_400


def test_an_attempt_that_the_limit_allows_is_not_refused_because_of_an_earlier_one() -> None:
    limits = ACT.model_dump(mode="json")["limits"]
    policy = with_policy(limits={**limits, "REBOOT": {"group": "REBOOT", "limit": 2, "window_seconds": DAY}})
    story = Story(xid(79), policy=policy).amid(spent={(node_scope(NODE), Action.REBOOT): 1})

    assert story.isolated().next().step is Step.REBOOT


@pytest.mark.parametrize(
    "second",
    [PastRecovery("", NOW - timedelta(days=1)), PastRecovery("inc-old", NOW - timedelta(days=7))],
    ids=["this very incident", "exactly a week old"],
)
def test_neither_the_incident_itself_nor_one_that_has_left_the_window_marks_a_lemon(second: PastRecovery) -> None:
    story = Story(xid(79))
    if not second.incident_id:
        second = replace(second, incident_id=story.history.incident.incident_id)
    story.amid(recoveries=(PastRecovery("inc-1", NOW - timedelta(days=2)), second)).isolated()

    assert story.next().step is Step.REBOOT


def test_that_it_is_a_lemon_is_told_before_the_swap_and_not_again_after_it() -> None:
    past = tuple(PastRecovery(f"inc-{n}", NOW - timedelta(days=n)) for n in (1, 2))
    story = Story(xid(79)).amid(recoveries=past).isolated()
    assert "lemon" in story.next().reason

    assert "lemon" not in story.swapped().failed().next().reason


def test_an_accelerator_without_a_limit_is_not_reserved_for() -> None:
    story = Story(xid(79, component_serial="S1"), policy=with_policy(accelerator_limits={})).isolated()

    assert [held.scope for held in story.next().reserve] == [node_scope(NODE)]
