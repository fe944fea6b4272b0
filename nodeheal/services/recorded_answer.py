"""The first answer to a question, as the incident's timeline keeps it: whoever finds it may act on it."""

from nodeheal.contract.results import Answered, StepResult
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import History, TimelineEntry
from nodeheal.ports import Ports


def answer_id(question: Question) -> str:
    """The entry of the first answer; there is room for one."""
    return f"answer-{question.turn:04d}"


def recorded_answer(question: Question, history: History) -> TimelineEntry | None:
    """The first answer, or None."""
    return next((entry for entry in history.timeline if entry.entry_id == answer_id(question)), None)


def answered(blank: StepResult, entry: TimelineEntry, ports: Ports) -> StepResult:
    """What the workflow goes on with: DONE for yes, REFUSED for no, and what was said."""
    outcome = Outcome.DONE if entry.data == Answer.approve.value else Outcome.REFUSED
    said = {
        "outcome": outcome,
        "reason": entry.text,
        "finished_at": ports.clock(),
        "facts": Answered(answer=entry.data),
    }
    return blank.model_copy(update=said)
