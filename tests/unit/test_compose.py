"""The email that somebody reads at night."""

from dataclasses import replace

import pytest

from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import StepResult
from nodeheal.contract.vocabulary import Ending, NodeState, Outcome, Step
from nodeheal.domain.incident import Turn
from nodeheal.domain.node import Node
from nodeheal.domain.progress import read_progress
from nodeheal.services.compose import compose
from tests.unit.builders import NOW, node, xid
from tests.unit.test_decide import Story

HUMAN = Ending.HANDED_TO_A_HUMAN


def mail_of(story: Story, ending: Ending, about: Node, **said: object) -> Notification:
    """The email for this ending of the story."""
    decided = story.next().model_copy(update={"ending": ending, "reason": "why", **said})
    return compose(story.history, read_progress(story.history, story.policy), decided, about)


def test_a_subject_fits_and_is_plain_ascii() -> None:
    story = Story(xid(79), job="llama-äöü-" + "x" * 200)

    mail = mail_of(story, HUMAN, node())

    assert len(mail.subject) < 100
    assert mail.subject.isascii()
    assert "\n" not in mail.subject


def test_a_recovery_needs_nothing_and_pages_nobody() -> None:
    mail = mail_of(Story(xid(79)).isolated().rebooted().passed(), Ending.RECOVERED, node())

    assert "Needed     nothing." in mail.body
    assert mail.severity == "INFO"


def test_a_broken_node_and_a_job_that_is_down_are_both_named() -> None:
    story = Story(xid(79)).isolated().rebooted().failed().then(Outcome.REFUSED, "no healthy spare")

    mail = mail_of(story, HUMAN, node(state=NodeState.QUARANTINED))

    assert "Repair it, or retire it" in mail.body
    assert "llama is stopped. Start it again" in mail.body
    assert "the reboot did not help (diagnostics failed: pcie)" in mail.body
    assert mail.severity == "PAGE"


def test_a_job_that_runs_on_the_spare_is_not_called_stopped() -> None:
    story = Story(xid(74)).isolated().swapped().passed().then(Outcome.DONE, "llama restarted")

    mail = mail_of(story, HUMAN, node(state=NodeState.QUARANTINED))

    assert "is stopped" not in mail.body


def test_a_healed_node_whose_job_stayed_down_is_not_said_to_be_untouched() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.REFUSED, "10 of 10 are spent")

    mail = mail_of(story, HUMAN, node(state=NodeState.PROBATION))

    assert "llama is stopped" in mail.body
    assert "as they were" not in mail.body


def test_what_was_not_touched_is_said_to_be_as_it_was() -> None:
    mail = mail_of(Story(xid(999)), HUMAN, node())

    assert "has left it and its job as they were" in mail.body


def test_the_same_ending_has_the_same_key_and_another_incident_another() -> None:
    first = mail_of(Story(xid(79)), HUMAN, node())
    again = mail_of(Story(xid(79)), HUMAN, node(), reason="other words")
    other = mail_of(Story(xid(79, event_id="other")), HUMAN, node())

    assert first.key == again.key != other.key


@pytest.mark.parametrize(("outcome", "doubt"), [(Outcome.DONE, False), (Outcome.TIMED_OUT, True)])
def test_where_the_evidence_is_stands_in_the_email(outcome: Outcome, doubt: bool) -> None:
    story = Story(xid(79)).isolated()
    decision = story.next().model_copy(update={"step": Step.FREEZE_EVIDENCE})
    where = {"link": "s3://evidence/a.tar.gz", "console": "https://console/a"}
    result = StepResult(
        step=Step.FREEZE_EVIDENCE,
        node_id=decision.node_id,
        outcome=outcome,
        reason="saved",
        finished_at=NOW,
        evidence=where,
    )
    history = replace(story.history, turns=(*story.history.turns, Turn(decision, result)))

    mail = compose(history, read_progress(history, story.policy), decision, node())

    assert "Saved      s3://evidence/a.tar.gz" in mail.body
    assert "https://console/a" in mail.body
    assert ("not seen to arrive" in mail.body) is doubt
