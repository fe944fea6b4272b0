"""Every node of a gang reports a run that hangs, or whose loss is not a number. They share one incident, of the node
that reported first.
"""

from datetime import timedelta

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import TRAINING_DIVERGED, TRAINING_HANG, TRAINING_SLOWED
from nodeheal.contract.vocabulary import Ending, Family, IncidentState
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Hang
from nodeheal.domain.recovery.incident import History
from nodeheal.ports import Ports
from nodeheal.services.intake.add_event import add_event

_OF_ALL_NODES = frozenset({TRAINING_HANG, TRAINING_DIVERGED})
_OF_A_RUN = _OF_ALL_NODES | {TRAINING_SLOWED}
_ONE_MOMENT = timedelta(minutes=10)  # agents look every 30 s, and a bus that retries takes minutes


def why_not_of_this_run(event: HealthEvent, node: Node, ports: Ports) -> str:
    """Returns why a reported hang concerns no run on this node. Empty: it does, or it is no hang.

    The files of a run that has ended stay on its node and never change, whatever runs there now.
    """
    job_id, run = _whose(event, _OF_A_RUN)
    if not job_id:
        return ""
    job = ports.jobs.get(job_id)
    if job is not None and job.is_over:
        return f"of {job_id}, which is over"
    if job is not None and run and run != str(job.current_run):
        return f"of run {run} of {job_id}, which is over"
    if job is not None and not _is_member(event.node_id, job_id, job.current_run, ports):
        return f"of {job_id}, no rank of which is on this node"
    if node.job_id is not None and node.job_id != job_id:
        return f"of {job_id}, which does not run here any more"
    return ""


def joined(event: HealthEvent, ports: Ports) -> bool | None:
    """Add it to the incident that another node of the gang has opened for the same hang: whether it was news there.

    None: there is no such incident, it is closed, a node outside of the gang has opened it, or it is no hang of a run.
    """
    job_id, run = _whose(event)
    known = ports.job_notes.hang_of(str(event.component)) if run else None
    if known is None or known.node_id == event.node_id:
        return None
    if ports.jobs.get(job_id) is not None and not _is_member(known.node_id, job_id, int(run), ports):
        return None  # it was opened before there was such a job
    incident = ports.incidents.incident(known.incident_id)
    is_same_moment = event.observed_at < incident.opened_at + _ONE_MOMENT
    # Where nodeheal only observes, an incident closes before all nodes of a gang have reported.
    is_observed = incident.ending is Ending.OBSERVED_ONLY and is_same_moment
    if incident.state is IncidentState.CLOSED and not is_observed:
        return None
    is_new, _ = add_event(event, known.incident_id, ports)
    return is_new


def note_first(event: HealthEvent, incident_id: str, ports: Ports) -> None:
    """Remember which incident a hang of a run belongs to, right after it was opened."""
    if _whose(event)[1]:
        ports.job_notes.note_hang(Hang(str(event.component), event.node_id, incident_id, ports.clock()))


def seen_hanging_by(history: History) -> frozenset[str]:
    """The nodes that report the hang that the incident is about; none, where it is about something else."""
    if not _whose(history.incident.root)[0]:
        return frozenset()
    return frozenset(event.node_id for event in history.events if _whose(event)[0])


def _is_member(node_id: str, job_id: str, number: int, ports: Ports) -> bool:
    run = ports.jobs.get_run(job_id, number)
    return run is not None and any(task.node_id == node_id for task in run.tasks)


def _whose(event: HealthEvent, codes: frozenset[str] = _OF_ALL_NODES) -> tuple[str, str]:
    """Return the job and the run that the event is about; empty: its code is another one, or it names no run."""
    if event.family is not Family.host or event.code not in codes:
        return "", ""
    return job_and_run(event)


def job_and_run(event: HealthEvent) -> tuple[str, str]:
    """What an agent names as the component of a run's finding: the job, and its run; empty: it names none."""
    job_id, _, run = (event.component or "").partition("/")
    return job_id, run
