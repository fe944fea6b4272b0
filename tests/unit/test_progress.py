"""What the turns of a recovery have come to."""

from dataclasses import replace

import pytest

from nodeheal.contract.results import CallAgain, Isolated, Refused, Replaced
from nodeheal.contract.vocabulary import Action, Outcome, Refusal
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.recovery.progress import Progress, read_progress
from nodeheal.domain.recovery.recover import _boot_concerned
from tests.support.builders import ACT, xid
from tests.support.recovery_story import Story


def test_nothing_is_waited_for_at_the_beginning() -> None:
    assert not Progress().has_waited


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_node_that_was_not_drained_in_time_is_not_isolated(is_drained: bool) -> None:
    story = Story(xid(79)).then(Outcome.TIMED_OUT, facts=Isolated(is_drained=is_drained))

    assert read_progress(story.history, ACT).is_isolated is is_drained


@pytest.mark.parametrize("is_new", [True, False])
def test_a_spare_is_no_new_machine(is_new: bool) -> None:
    story = Story(xid(64)).isolated()
    story.then(Outcome.DONE, boot_id="boot-9", replacement_node_id="mi-0spare", facts=Replaced(is_new_machine=is_new))

    assert read_progress(story.history, ACT).has_new_machine is is_new


def test_a_step_that_is_called_again_has_not_been_tried() -> None:
    story = Story(xid(79)).isolated().then(Outcome.UNKNOWN, facts=CallAgain())

    assert read_progress(story.history, ACT).tried == ()


def test_a_replacement_that_is_refused_for_another_reason_waits_for_no_capacity() -> None:
    story = Story(xid(64)).isolated().then(Outcome.REFUSED, facts=Refused(code=Refusal.EXTERNAL_REMEDIATOR))

    progress = read_progress(story.history, ACT)

    assert progress.missing is None
    assert [one.action for one in progress.tried] == [Action.REPLACE]


@pytest.mark.parametrize("seconds", [0, 90])
def test_the_isolation_says_whether_the_evidence_was_asked_for(seconds: int) -> None:
    """And no later turn does."""
    story = Story(xid(79)).isolated().rebooted()
    first, *others = story.history.turns
    asking = replace(first, decision=first.decision.model_copy(update={"evidence_seconds": seconds}))
    history = replace(story.history, turns=(asking, *others))

    begun = read_progress(history, ACT).evidence_begun

    assert (begun is not None and begun.turn == 1) is bool(seconds)


def test_a_reason_is_about_the_boot_that_was_tried_last() -> None:
    story = Story(xid(79)).isolated().rebooted()
    fault = assess_faults(story.history, ACT).fault

    assert _boot_concerned(read_progress(story.history, ACT), fault) == "boot-2"
    assert _boot_concerned(Progress(), fault) == "boot-1"
