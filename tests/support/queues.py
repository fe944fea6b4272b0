"""Where an incident stands in the queue of its pool."""

from datetime import timedelta

from nodeheal.contract.names import pool_line
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import DecideRequest, Decision
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Outcome,
    Refusal,
    Step,
    VerbName,
)
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.operations.steps import launch_gang
from nodeheal.ports import Ports
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.queue import place_of
from tests.support.builders import ACT, NOW, under_way, xid
from tests.support.guardrails import APPROVE
from tests.support.incident_steps import B
from tests.support.incident_steps import Incident as SteppedIncident
from tests.support.two_nodes import OTHER, healed

WAITS = Decision(step=Step.WAIT, awaits=Awaited.BUDGET, reason="full", node_id="mi-1", action=Action.REBOOT)


def stands(ports: Ports, name: str, decision: Decision = WAITS, minutes: int = 0, job: str | None = None) -> None:
    opened_at = NOW + timedelta(minutes=minutes)
    incident = Incident(name, "mi-1", "demo", xid(), opened_at, "policy-1", job_id=job)
    line = (pool_line(str(decision.awaits), "demo"), place_of(decision, incident))
    token = f"token-{name}"
    under_way(ports, VerbName.WAIT, incident_id=name, node_id="mi-1", token=token, awaits=decision.awaits, line=line)


def left_to_an_incident_that_asks() -> tuple[SteppedIncident, DecideRequest]:
    """The job was stopped for A, whose incident has left it to that of B; a human says no to B's recovery."""
    it = healed()
    launch_gang(it.request(), it.ports, ACT)
    assert it.resumed().refused_for(Refusal.LEFT_TO_INCIDENT)
    asked = decide_next_step(DecideRequest(incident_id=incident_id_of(OTHER), turn=0), it.ports, APPROVE)
    refused = StepResult(step=asked.step, node_id=B, outcome=Outcome.REFUSED, reason="no", finished_at=it.clock())
    return it, DecideRequest(incident_id=incident_id_of(OTHER), turn=1, result=refused)
