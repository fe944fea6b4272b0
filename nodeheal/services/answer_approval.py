"""A human answers a question of nodeheal's: once, in time, and on the record."""

from dataclasses import dataclass

from nodeheal.contract.steps import StepResult
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.approval import Answer, Question
from nodeheal.domain.incident import History, TimelineEntry
from nodeheal.ports import Ports, Wait
from nodeheal.services.steps import resume
from nodeheal.services.wait_for_approval import APPROVAL, approval_key

_SAID = {Answer.approve: "approved", Answer.refuse: "refused"}


@dataclass(frozen=True)
class Answered:
    """What became of an answer. `is_taken`: it was the first, and it counts."""

    is_taken: bool
    text: str


def answer_approval(question: Question, answer: Answer, who: str, why: str, ports: Ports) -> Answered:
    """Record the first answer and resume the workflow with it. Every later one is refused, and recorded as refused.

    Raises NotFound for an incident that does not exist.
    """
    wait = ports.waits.get(APPROVAL, approval_key(question))
    if wait is None or wait.deadline_at <= ports.clock():
        return _too_late(question, answer, who, ports)
    said = f"{_SAID[answer]} by {who}{f': {why}' if why else ''}"
    entry = TimelineEntry(ports.clock(), "answer", _entry_id(question), said, answer.value)
    is_first = ports.incidents.append(question.incident_id, entry)
    first = _recorded(question, ports.incidents.history(question.incident_id)) or entry
    # Also for a later answer: the first one may have been recorded by a call that died before it could resume.
    was_waiting = _resume_with(wait, first, ports)
    if is_first and was_waiting:
        return Answered(True, said)
    if is_first:
        return _refuse(question, answer, who, "the workflow had given up waiting a moment before", ports)
    return _refuse(question, answer, who, f"it was answered before: {first.text}", ports)


def open_question(incident_id: str, ports: Ports) -> Question:
    """What the incident asks now. Raises ValueError where it asks nothing, NotFound for an unknown incident."""
    history = ports.incidents.history(incident_id)
    question = Question(incident_id, history.incident.turn)
    if ports.waits.get(APPROVAL, approval_key(question)) is None:
        raise ValueError(f"{incident_id} waits for no approval; it is {history.incident.state}")
    return question


def _resume_with(wait: Wait, first: TimelineEntry, ports: Ports) -> bool:
    """False: the workflow waits no more."""
    outcome = Outcome.DONE if first.data == Answer.approve.value else Outcome.REFUSED
    blank = StepResult.model_validate_json(wait.result_json)
    known = {"outcome": outcome, "reason": first.text, "finished_at": ports.clock()}
    return resume(ports, wait, blank.model_copy(update=known))


def _too_late(question: Question, answer: Answer, who: str, ports: Ports) -> Answered:
    history = ports.incidents.history(question.incident_id)
    first = _recorded(question, history)
    why = f"it was answered before: {first.text}" if first else "the time to answer is over"
    return _refuse(question, answer, who, why, ports)


def _refuse(question: Question, answer: Answer, who: str, why: str, ports: Ports) -> Answered:
    """The refusal is part of the incident's story too."""
    now = ports.clock()
    text = f"an answer of {who} ({answer.value}) was refused: {why}"
    entry_id = f"{_entry_id(question)}-refused-{now:%Y%m%dT%H%M%S%f}"
    ports.incidents.append(question.incident_id, TimelineEntry(now, "answer", entry_id, text))
    return Answered(False, why)


def _recorded(question: Question, history: History) -> TimelineEntry | None:
    return next((entry for entry in history.timeline if entry.entry_id == _entry_id(question)), None)


def _entry_id(question: Question) -> str:
    return f"answer-{question.turn:04d}"
