"""A human answers a question of nodeheal's: once, in time, and on the record."""

from dataclasses import dataclass
from datetime import datetime

from nodeheal.contract import results
from nodeheal.contract.vocabulary import Awaited, Outcome
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import History, short_id
from nodeheal.domain.recovery.timeline import AnswerRefused, ApprovalAnswered, TimelineEntry, entries_with
from nodeheal.domain.review.review import AWAITED, status_text
from nodeheal.operations.engine import reconcile
from nodeheal.operations.questions import find_question, recorded_answer
from nodeheal.ports import Ports
from nodeheal.services.operators.describe_answer import describe_answer, why_breaker_holds, why_paused

_SAID = {Answer.approve: "approved", Answer.refuse: "refused"}


@dataclass(frozen=True)
class PendingQuestion:
    """What an incident asks, until when, and what each answer does."""

    turn: int
    asks: str
    deadline_at: datetime
    means: dict[Answer, str]


@dataclass(frozen=True)
class AnswerReceipt:
    """What became of an answer. `is_taken`: it was the first, and it counts."""

    is_taken: bool
    text: str


def answer_approval(
    question: Question, answer: Answer, who: str, why: str, ports: Ports, actor: str | None = None
) -> AnswerReceipt:
    """Record the first answer and resume the workflow with it. Every later one is refused, and one a day is recorded.

    Raises NotFound for an incident that does not exist.
    """
    asked = find_question(question, ports)
    if asked is None or asked.deadline_at <= ports.clock():
        return _too_late(question, answer, who, ports)
    incident = ports.incidents.incident(question.incident_id)
    if answer is Answer.approve and (paused := why_paused(incident, ports)):
        open_until = f"the question stays open until {asked.deadline_at:%Y-%m-%d %H:%M:%S} UTC"
        return _refuse(question, answer, who, f"{paused}, so a yes would do nothing now; {open_until}", ports)
    line = f"{_SAID[answer]} by {who}{f': {why}' if why else ''}"
    now, turn, entry_id = ports.clock(), question.turn - 1, _entry_id(question)
    entry = TimelineEntry(now, entry_id, line, ApprovalAnswered(answer), turn, actor=actor)
    is_new = ports.incidents.append(question.incident_id, entry)
    timeline = ports.incidents.history(question.incident_id).timeline
    first = next((known for known in timeline if known.entry_id == entry_id), entry)
    is_first = is_new or first == entry  # a write whose answer was lost is repeated, and finds itself
    # Also for a later answer: the first one may have been recorded by a call that died before it could resume.
    was_waiting = reconcile(asked, ports)
    if not is_first:
        return _refuse(question, answer, who, f"it was answered before: {first.text}", ports)
    if not was_waiting:
        return _at_the_last_moment(question, entry, answer, who, ports)
    is_held = answer is Answer.approve and ports.pools.get(incident.pool).is_tripped
    return AnswerReceipt(True, f"{line}. {why_breaker_holds(incident)}" if is_held else line)


def open_question(incident_id: str, ports: Ports) -> Question:
    """What the incident asks now. Raises ValueError where it asks nothing, NotFound for an unknown incident."""
    history = ports.incidents.history(incident_id)
    question = Question(incident_id, history.incident.turn)
    if find_question(question, ports) is None:
        answers = [entry.text for entry in entries_with(history.timeline, ApprovalAnswered)]
        before = f" It was {answers[-1]}." if answers else ""
        raise ValueError(f"{incident_id} waits for no approval; {_how_it_stands(history)}.{before}")
    return question


def _how_it_stands(history: History) -> str:
    """What it does instead, and the next command, for who takes it for one that asks."""

    incident, last = history.incident, history.turns[-1] if history.turns else None
    show = f"`nodeheal incidents show {short_id(incident.incident_id)}`"
    if not incident.is_under_way:
        return f"its state: {status_text(incident)} ({show})"
    awaits = last.decision.awaits if last is not None and last.result is None else None
    if awaits is None or awaits is Awaited.APPROVAL:
        return f"nodeheal works on it ({show})"
    pool = incident.pool
    reset = f"`nodeheal breaker show {pool}`, then `nodeheal breaker reset {pool} --why ...`"
    return f"it waits for {AWAITED[awaits]} ({reset if awaits is Awaited.BREAKER else show})"


def asked_now(incident_id: str, ports: Ports) -> PendingQuestion | None:
    """What the incident asks now. None: nothing. Raises NotFound."""
    incident = ports.incidents.incident(incident_id)
    return pending_question(Question(incident_id, incident.turn), ports)


def pending_question(question: Question, ports: Ports) -> PendingQuestion | None:
    """What is asked by this question. None: it is not open any more. Raises NotFound."""
    asked = find_question(question, ports)
    if asked is None:
        return None
    decision, incident = asked.step.decision, ports.incidents.incident(question.incident_id)
    return PendingQuestion(
        question.turn, decision.reason, asked.deadline_at, describe_answer(decision, incident, ports)
    )


def _at_the_last_moment(
    question: Question, entry: TimelineEntry, answer: Answer, who: str, ports: Ports
) -> AnswerReceipt:
    """Takes an answer after the workflow has stopped waiting: it looks for one once more before it concludes."""
    result = ports.incidents.history(question.incident_id).turns[question.turn - 1].result  # the turn that has asked
    if result is not None and not isinstance(result.facts, results.Answered):  # there is room for one answer
        return _refuse(question, answer, who, "the workflow had given up waiting a moment before", ports)
    asked = f"`nodeheal incidents show {question.incident_id}` says whether it came in time"
    return AnswerReceipt(True, f"{entry.text}, at the last moment: {asked}")


def _too_late(question: Question, answer: Answer, who: str, ports: Ports) -> AnswerReceipt:
    history = ports.incidents.history(question.incident_id)
    first = recorded_answer(question, history)
    if first is not None:
        return _refuse(question, answer, who, f"it was answered before: {first.text}", ports)
    turns = history.turns[question.turn - 1 : question.turn]  # the one that has asked
    moot = [turn.result.reason for turn in turns if turn.result and turn.result.outcome is Outcome.REFUSED]
    why = f"the question is no longer open: {moot[0]}" if moot else "the time to answer is over"
    return _refuse(question, answer, who, why, ports)


def _refuse(question: Question, answer: Answer, who: str, why: str, ports: Ports) -> AnswerReceipt:
    """The refusal is part of the incident's story too: the first of a day and an answer, however often it is sent.

    Who sends it may type any name, so the name makes no entry of its own.
    """
    now = ports.clock()
    text = f"an answer of {who} ({answer.value}) was refused: {why}"
    entry_id = f"{_entry_id(question)}-refused-{answer.value}-{now:%Y%m%d}"
    ports.incidents.append(question.incident_id, TimelineEntry(now, entry_id, text, AnswerRefused(answer)))
    return AnswerReceipt(False, why)


def _entry_id(question: Question) -> str:
    """There is room for one answer."""
    return f"answer-{question.turn:04d}"
