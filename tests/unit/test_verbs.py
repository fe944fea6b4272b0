"""The row of each verb is whole, and names only what exists elsewhere."""

from dataclasses import replace

import pytest

from nodeheal.contract.names import DIAGNOSE, DRAIN, OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Action, Outcome, Provider, Step
from nodeheal.domain.faults.catalog import catalog
from nodeheal.domain.policy.policy_models import Deadlines, PoolPolicy
from nodeheal.domain.recovery.progress import read_progress
from nodeheal.domain.verbs import DISRUPTIVENESS, ESCALATION_STEPS, VERBS, VerbSpec, verb_of_step
from tests.support.builders import xid
from tests.support.recovery_story import Story

ACTING = [action for action, verb in VERBS.items() if verb.has_mode]


def test_every_action_and_every_step_has_a_row() -> None:
    assert set(VERBS) == set(Action)
    assert {verb_of_step(step).step for step in Step} == set(Step)


def test_no_two_verbs_are_equally_disruptive() -> None:
    assert list(DISRUPTIVENESS.values()) == list(range(len(Action)))


@pytest.mark.parametrize("action", ACTING)
def test_a_verb_that_acts_has_its_words(action: Action) -> None:
    verb = VERBS[action]

    assert all((verb.noun, verb.done, verb.proposal, verb.reference, verb.announced.startswith(verb.with_article)))
    assert bool(verb.plural) == (verb.budget_group is not None)


@pytest.mark.parametrize("action", ACTING)
def test_a_verb_spends_attempts_of_a_group_that_has_a_limit(action: Action) -> None:
    verb = VERBS[action]

    assert (verb.limit is not None) == (verb.budget_group is action)
    assert verb.budget_group is None or VERBS[verb.budget_group].limit is not None


@pytest.mark.parametrize("verb", [*VERBS.values(), *map(verb_of_step, Step)], ids=lambda verb: verb.step)
def test_its_deadline_and_its_switch_are_fields_of_the_policy(verb: VerbSpec) -> None:
    assert verb.deadline in Deadlines.model_fields
    assert verb.pool_option in ("", *PoolPolicy.model_fields)


def test_an_operator_may_ask_for_what_the_catalog_has_a_row_of() -> None:
    asked = {row.subcode for row in catalog().values() if row.code == OPERATOR_REQUEST and row.subcode}

    askable = {action.value for action, verb in VERBS.items() if verb.is_askable}
    assert asked == askable | {DRAIN, DIAGNOSE}  # isolations, one of them after the job and one with a diagnosis


def test_a_verb_that_only_one_provider_has_must_be_switched_on() -> None:
    of_one = {action for action in ESCALATION_STEPS if VERBS[action].providers != set(Provider)}

    assert of_one == {Action.STOP_START}
    assert all(VERBS[action].pool_option for action in of_one)


@pytest.mark.parametrize(
    ("step", "action", "deadline"),
    [
        (Step.REBOOT, None, "reboot_seconds"),
        (Step.REBOOT, Action.REBOOT, "reboot_seconds"),
        (Step.REBOOT, Action.STOP_START, "stop_start_seconds"),
        (Step.REBOOT, Action.RESET_GPU, "reset_gpu_seconds"),
        (Step.WAIT, Action.REBOOT, "quick_seconds"),
        (Step.DIAGNOSE, None, "diagnose_seconds"),
    ],
)
def test_a_step_is_the_verb_that_its_decision_names(step: Step, action: Action | None, deadline: str) -> None:
    assert verb_of_step(step, action).deadline == deadline


@pytest.mark.parametrize(
    ("action", "option", "is_on"),
    [
        (Action.REBOOT, {}, True),
        (Action.RESET_GPU, {}, False),  # a reboot stands for it
        (Action.RESET_GPU, {"reset_gpu": True}, True),
        (Action.STOP_START, {}, False),
        (Action.STOP_START, {"stop_start": True}, True),
    ],
)
def test_a_pool_has_a_verb_unless_it_must_be_switched_on(action: Action, option: dict[str, bool], is_on: bool) -> None:
    assert VERBS[action].is_on(PoolPolicy(**option)) is is_on


def test_what_a_node_reported_before_a_verb_that_keeps_its_boot_says_nothing_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(xid(79)).isolated().then(Outcome.DONE)  # its reboot, as if the boot had gone on
    last = story.history.turns[-1]
    assert last.result is not None
    same_boot = last.result.model_copy(update={"boot_id": story.history.events[0].boot_id})
    history = replace(story.history, turns=(*story.history.turns[:-1], replace(last, result=same_boot)))
    contradicted = read_progress(history, story.policy).contradiction
    monkeypatch.setitem(VERBS, Action.REBOOT, replace(VERBS[Action.REBOOT], keeps_boot=True))

    assert "after it" in contradicted
    assert read_progress(history, story.policy).contradiction == ""
