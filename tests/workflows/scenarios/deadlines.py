"""What is found out at a deadline: it must be what has happened, for the next step goes by it.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import AttemptLimit, Reservation, StepRequest
from nodeheal.contract.vocabulary import Action, Awaited, Outcome, Step
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import TimelineEntry
from nodeheal.operations.approve import answer_id
from nodeheal.operations.engine import conclude
from tests.unit.builders import NOW
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.scenarios.races import Moment
from tests.workflows.scenarios.turns import opened

_SUMMARY = '{"verdict": "OK", "failed_tests": [], "measured": {}}'


def _found(it: Moment, request: StepRequest, outcome: Outcome, said: str) -> list[str]:
    found = it.does(lambda: conclude(request, it.ports))
    if isinstance(found, StepResult) and found.outcome is outcome and said in found.reason:
        return []
    return [f"not found to be {outcome}, {said!r}: {found}"]


def _at(step: Step, request: StepRequest, **decided: object) -> StepRequest:
    decision = request.decision.model_copy(update={"step": step, **decided})
    return request.model_copy(update={"decision": decision})


# Of a reboot


def its_reboot_was_never_begun() -> list[str]:
    it, mine = opened()
    limit = AttemptLimit(group=Action.REBOOT, limit=2, window_seconds=86_400)
    counted = _at(Step.REBOOT, mine, reserve=(Reservation(scope=f"node#{BROKEN}", limit=limit),))
    return _found(it, counted, Outcome.FAILED, "was not sent")


# Of a diagnosis, and of evidence


# Of an answer


def its_question_was_answered_and_nobody_was_told() -> list[str]:
    it, mine = opened()
    asked = _at(Step.WAIT, mine, awaits=Awaited.APPROVAL)
    question = Question(mine.incident_id, asked.turn)
    answer = TimelineEntry(NOW, "answer", answer_id(question), "refused by ada", Answer.refuse.value)
    it.plain.incidents.append(mine.incident_id, answer)
    return _found(it, asked, Outcome.REFUSED, "refused by ada")


def nothing_new_was_heard() -> list[str]:
    it, mine = opened()
    return _found(it, _at(Step.WAIT, mine, awaits=Awaited.BUDGET), Outcome.TIMED_OUT, "no news within")
