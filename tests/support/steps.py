"""Requests, decisions and results as the functions speak them, in JSON."""

from typing import Any

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Ending, Outcome, Step
from nodeheal.domain.recovery.incident import Turn
from tests.support.builders import NOW
from tests.support.incident_steps import A

INCIDENT = "inc-20261121T055031-mi-0a1b2c3d4e5f-0123456789"
NODE = "mi-0a1b2c3d4e5f"
DEADLINE_SECONDS = 900


def decision(step: Step, ending: Ending | None = None, deadline_seconds: int = DEADLINE_SECONDS) -> dict[str, Any]:
    """What decide_next_step answers."""
    decided = Decision(
        step=step, reason=f"because of {step}", node_id=NODE, deadline_seconds=deadline_seconds, ending=ending
    )
    return decided.model_dump(mode="json")


def result(step: Step, outcome: Outcome = Outcome.DONE, reason: str = "as it should") -> dict[str, Any]:
    """What a step answers."""
    answered = StepResult(
        step=step,
        node_id=NODE,
        outcome=outcome,
        reason=reason,
        finished_at="2026-11-21T05:51:00Z",
    )
    return answered.model_dump(mode="json")


def request(step: Step, turn: int = 2) -> dict[str, Any]:
    """What a child is started with."""
    asked = StepRequest(incident_id=INCIDENT, turn=turn, decision=Decision.model_validate(decision(step)))
    return {"request": asked.model_dump(mode="json", exclude={"task_token"})}


def turn(step: Step, outcome: Outcome, **changes: Any) -> Turn:
    decision = Decision(step=step, reason="so", node_id=A, **changes)
    return Turn(decision, StepResult(step=step, node_id=A, outcome=outcome, reason="so", finished_at=NOW))


def asking(step: Step = Step.RESTART_WORKLOAD, node_id: str = A, **changes: Any) -> StepRequest:
    decision = Decision(step=step, reason="so", node_id=node_id, job_id="llama")
    return StepRequest(incident_id="inc-1", turn=1, decision=decision.model_copy(update=changes), task_token="token")
