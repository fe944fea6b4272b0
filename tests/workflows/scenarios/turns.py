"""Whose wait it is, of which turn and of which boot: what is another's must not be taken for one's own.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import IncidentState, Step
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.recovery.timeline import decision_entry, result_entry
from nodeheal.services.intake import liveness
from nodeheal.services.intake.ingest import ingest
from tests.support.builders import ACT, NOW, stored_node, xid
from tests.support.fake_cluster import BROKEN
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import Moment


def opened() -> tuple[Moment, StepRequest]:
    """An incident is open on a node, and is at its second turn."""
    it = Moment()
    ingest(xid(79), it.plain, ACTS)
    broken = stored_node(it.plain, BROKEN)
    mine = str(broken.open_incident)
    decision = Decision(step=Step.REBOOT, reason="it failed", node_id=BROKEN, job_id="llama")
    return it, StepRequest(incident_id=mine, turn=1, decision=decision)


def turned(it: Moment, mine: StepRequest, decision: Decision, result: StepResult | None = None) -> None:
    """Its first turn is on record, and how that went."""
    incident = it.plain.incidents.history(mine.incident_id).incident
    entries = [decision_entry(0, decision, NOW), *([result_entry(0, result)] if result is not None else [])]
    it.plain.incidents.advance(replace(incident, turn=1, state=IncidentState.WAITING), entries)


def a_silent_node_is_written_while_it_is_looked_at() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(last_seen=NOW + timedelta(hours=3)))
    heartbeats = {BROKEN: Heartbeat(f"role:{BROKEN}", "boot-1", NOW + timedelta(seconds=90), 30.0)}
    it.plain.clock.advance(3 * 3_600)  # type: ignore[attr-defined]
    silent = it.does(lambda: list(liveness._still_silent([BROKEN], heartbeats, it.ports, ACT)))
    return [f"{one.node_id} has just been heard" for one in silent]
