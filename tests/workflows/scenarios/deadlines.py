"""What is found out at a deadline: it must be what has happened, for the next step goes by it.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome, Step
from nodeheal.operations.verbs import conclude
from tests.workflows.scenarios.races import Moment


def _found(it: Moment, request: StepRequest, outcome: Outcome, said: str) -> list[str]:
    found = it.does(lambda: conclude(request, it.ports))
    if isinstance(found, StepResult) and found.outcome is outcome and said in found.reason:
        return []
    return [f"not found to be {outcome}, {said!r}: {found}"]


def _at(step: Step, request: StepRequest, **decided: object) -> StepRequest:
    decision = request.decision.model_copy(update={"step": step, **decided})
    return request.model_copy(update={"decision": decision})
