"""The questions that recoveries ask people, and the answers on record."""

from dataclasses import dataclass

from nodeheal.contract.vocabulary import VerbName
from nodeheal.domain.operation import Operation, OperationState, incident_owner
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.timeline import ApprovalAnswered
from nodeheal.ports import Ports


@dataclass(frozen=True)
class RecordedAnswer:
    """The first answer to a question, as the incident's timeline keeps it."""

    answer: Answer
    text: str


def find_question(question: Question, ports: Ports) -> Operation | None:
    """Returns the open operation that asks this. None: it has ended, or was never asked."""
    name = f"{question.incident_id}-{question.turn}"
    operation = ports.operations.get(incident_owner(question.incident_id), name)
    is_over = operation is not None and operation.state is OperationState.DELIVERED
    if operation is None or operation.verb is not VerbName.APPROVE or is_over:
        return None
    return operation


def recorded_answer(question: Question, history: History) -> RecordedAnswer | None:
    """The first answer, or None."""
    for entry in history.timeline:
        if isinstance(entry.payload, ApprovalAnswered) and entry.turn == question.turn - 1:
            return RecordedAnswer(entry.payload.answer, entry.text)
    return None
