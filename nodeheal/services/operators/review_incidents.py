"""Finds incidents and reads them back, for reviews."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.domain.review.review import Accelerators, Review, review_of
from nodeheal.ports import Ports

# Clocks differ a little: one that was opened by another machine just now is listed as well.
CLOCK_SKEW = timedelta(minutes=5)
_RUNS_LOOKED_AT = 20
_UNENDED = (IncidentState.OPEN, IncidentState.WAITING)


def list_incidents(
    ports: Ports, pools: Sequence[str], states: Sequence[IncidentState], since: datetime
) -> list[Incident]:
    """The incidents of these pools in these states that were opened since, newest first, each once."""
    until = ports.clock() + CLOCK_SKEW
    # A workflow that broke marks its incident itself, which stays listed under the state that it broke in.
    listed = {*states, *_UNENDED} if IncidentState.ESCALATED in states else {*states}
    # In the order of an incident's life: one that moves on while we look is kept as it was seen last.
    in_order = [state for state in IncidentState if state in listed]
    by_id = {
        incident.incident_id: incident
        for pool in pools
        for state in in_order
        for incident in ports.fleet_index.incidents(pool, state, since, until)
    }
    asked = [incident for incident in by_id.values() if incident.state in states]
    return sorted(asked, key=lambda incident: (incident.opened_at, incident.incident_id), reverse=True)


def review_incident(incident_id: str, ports: Ports) -> Review:
    """The story of one incident. Raises NotFound."""
    history = ports.incidents.history(incident_id)
    return review_of(history, _accelerators(history, ports), ports.clock())


def _accelerators(history: History, ports: Ports) -> Accelerators:
    node_id = history.incident.node_id
    run = _run_at(history.incident, ports)
    others = {task.node_id for task in run.tasks} - {node_id} if run else set()
    return Accelerators(_count(node_id, ports), sum(_count(other, ports) for other in others))


def _count(node_id: str, ports: Ports) -> int:
    node = ports.nodes.get(node_id)
    return node.accelerators if node else 0


def _run_at(incident: Incident, ports: Ports) -> Run | None:
    """The run of the job that the fault struck: the newest that had begun by then."""
    job = ports.jobs.get(incident.job_id) if incident.job_id else None
    newest = job.current_run if job else 0
    for number in range(newest, max(0, newest - _RUNS_LOOKED_AT), -1):
        run = ports.jobs.get_run(str(incident.job_id), number)
        if run is not None and run.started_at <= incident.opened_at:
            return run
    return None
