"""When a stop and start is the next escalation step, and what follows where it did not help."""

from typing import Any

import pytest

from nodeheal.contract.results import Refused
from nodeheal.contract.vocabulary import Action, Confirmation, Ending, Escalation, Outcome, Provider, Refusal, Step
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.verbs import VERBS
from tests.support.builders import ACT, xid
from tests.support.policies import with_policy
from tests.support.recovery_story import Story, steps_of
from tests.support.stop_start_incident import MOVES, POOL, broken, next_rung, stopped


def test_where_a_reboot_did_not_help_the_machine_is_stopped_and_started_before_it_is_replaced() -> None:
    story = broken()

    assert next_rung(story) is Action.REBOOT
    decision = story.rebooted().failed().next()

    assert (decision.step, decision.action) == (Step.REBOOT, Action.STOP_START)
    assert [(held.scope, held.limit) for held in decision.reserve] == [
        (f"node#{xid(79).node_id}", MOVES.limits[Action.STOP_START])
    ]
    assert decision.deadline_seconds == MOVES.deadlines.stop_start_seconds
    assert "the reboot did not help" in decision.reason
    assert VERBS[Action.STOP_START].announced in decision.reason
    assert next_rung(stopped(story, boot_id="boot-3").failed()) is Action.REPLACE


def test_so_it_is_where_the_node_never_came_back_from_its_reboot() -> None:
    assert next_rung(broken().then(Outcome.TIMED_OUT, "no new boot id")) is Action.STOP_START


def test_what_it_has_healed_is_proven_and_returned_like_a_reboot() -> None:
    story = stopped(broken().rebooted().failed(), boot_id="boot-3")

    assert steps_of(story)[-2:] == ["REBOOT", "DIAGNOSE"]
    closed = story.passed().then(Outcome.DONE).then(Outcome.DONE, "llama runs again").next()
    assert closed.ending is Ending.RECOVERED
    assert "stopped and started on another host" in closed.reason


def test_it_must_run_stably_afterwards_too() -> None:
    story = stopped(broken(with_policy(default_pool=POOL, stable_seconds=60)).rebooted().failed(), boot_id="boot-3")

    assert story.passed().next().step is Step.WAIT


@pytest.mark.parametrize(
    ("policy", "provider", "code"),
    [(ACT, Provider.ec2, 79), (MOVES, Provider.hybrid, 79)],
)
def test_it_is_no_step_where_the_pool_has_not_asked_or_there_is_no_ec2(
    policy: RecoveryPolicy, provider: Provider, code: int
) -> None:
    assert next_rung(broken(policy, provider, code).rebooted().failed()) is Action.REPLACE


def test_it_follows_a_reboot_and_nothing_else() -> None:
    assert next_rung(broken(code=74)) is Action.REPLACE


def test_refused_it_leads_to_the_replacement_with_the_reason() -> None:
    story = stopped(broken().rebooted().failed(), Outcome.REFUSED, reason="i-1 is in Auto Scaling group trainers")

    decision = story.next()

    assert decision.action is Action.REPLACE
    assert "the stop and start was not possible (i-1 is in Auto Scaling group trainers)" in decision.reason


def test_without_room_for_the_start_it_is_replaced_at_once_and_without_a_step_left_a_human_hears_of_it() -> None:
    missing: dict[str, Any] = {
        "reason": "i-1 is stopped, and there is no capacity",
        "facts": Refused(code=Refusal.NO_CAPACITY, missing="p5"),
    }
    two = with_policy(default_pool=POOL, overrides=[{"fault": "xid/79", "ladder": ["REBOOT"], "why": "so we want it"}])

    replaced = stopped(broken().rebooted().failed(), Outcome.FAILED, **missing).next()
    told = stopped(broken(two).rebooted().failed(), Outcome.FAILED, **missing).next()

    assert replaced.action is Action.REPLACE
    assert (told.ending, told.escalation) == (Ending.HANDED_TO_A_HUMAN, Escalation.NO_CAPACITY)
    assert "i-1 is stopped" in told.reason


def test_its_own_attempts_count_and_a_reboots_do_not() -> None:
    node = f"node#{xid(79).node_id}"
    story = broken().amid(spent={(node, Action.REBOOT): 1})

    assert next_rung(story) is Action.STOP_START
    both_spent = story.amid(spent={(node, Action.REBOOT): 1, (node, Action.STOP_START): 1})
    assert next_rung(both_spent.answers(Confirmation.CONFIRMED)) is Action.REPLACE


def test_its_mode_may_differ() -> None:
    asks = with_policy(default_pool={**POOL, "modes": {"STOP_START": "approve"}})

    decision = broken(asks).rebooted().failed().next()

    assert (decision.step, decision.action) == (Step.WAIT, Action.STOP_START)
    assert "go on with a stop and start" in decision.reason


def test_a_reboot_by_hand_is_a_reboot_and_no_more() -> None:
    asked = xid(
        79, family="host", code="operator_request", subcode="REBOOT", source="nodeheal.operator", component=None
    )
    story = Story(asked, policy=MOVES).amid(provider=Provider.ec2).isolated()

    assert story.next().action is Action.REBOOT
    assert story.rebooted().failed().next().ending is Ending.HANDED_TO_A_HUMAN


def test_a_pool_that_has_it_needs_a_limit_and_no_ladder_names_it() -> None:
    limits = {name: limit for name, limit in ACT.model_dump(mode="json")["limits"].items() if name != "STOP_START"}

    assert with_policy(limits=limits)
    with pytest.raises(ValueError, match="STOP_START is missing"):
        with_policy(default_pool=POOL, limits=limits)
    with pytest.raises(ValueError, match="STOP_START stands in no ladder"):
        with_policy(overrides=[{"fault": "xid/79", "ladder": ["REBOOT", "STOP_START"], "why": "so"}])


def test_a_policy_that_does_not_know_it_still_decides() -> None:
    limits = {name: limit for name, limit in ACT.model_dump(mode="json")["limits"].items() if name != "STOP_START"}

    assert next_rung(broken(with_policy(limits=limits)).rebooted().failed()) is Action.REPLACE
