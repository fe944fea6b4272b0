"""Requests, decisions and results as the functions speak them, in JSON."""

from typing import Any

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Ending, Outcome, Step

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
