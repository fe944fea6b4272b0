"""The newest run of a job, and which of its ranks may still write."""

from dataclasses import replace

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Awaited, NodeState
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports import Ports
from nodeheal.services.jobs.start_gang import note_started
from nodeheal.services.saving import change_run


def is_newer_than_fault(run: Run, request: StepRequest, ports: Ports) -> bool:
    """Whether another incident has relaunched the gang since: one fault that many ranks report is one restart.

    One that was moved away from this node is, too, whenever the fault was seen. A run that this incident has stopped is
    not: a report may arrive long after its fault, and then nobody else brings the job back.
    """
    is_restart = run.incident_id not in ("", request.incident_id) and request.incident_id not in run.end_awaited_by
    fault_at = request.decision.fault_at or ports.incidents.incident(request.incident_id).root.observed_at
    return is_restart and (run.started_at > fault_at or is_elsewhere(run, request))


def is_elsewhere(run: Run, request: StepRequest) -> bool:
    """Whether the gang has left the node that the step is about: what is done there does not concern it."""
    return all(task.node_id != request.decision.node_id for task in run.tasks)


def current_run(job_id: str | None, ports: Ports) -> tuple[Job | None, Run | None]:
    """The job and its newest run, as far as there are any."""
    job = ports.jobs.get(job_id) if job_id else None
    return job, ports.jobs.get_run(job.job_id, job.current_run) if job else None


def nodes_of_gang(job_id: str | None, ports: Ports) -> frozenset[str]:
    """Returns the nodes on which the job will continue, each with a rank. One of them may look free: a human or a swap
    has removed the job's name from it. A job that is over has none."""
    job, run = current_run(job_id, ports)
    if job is None or run is None or job.is_over:
        return frozenset()
    return frozenset(task.node_id for task in run.tasks)


def left_of(job: Job, run: Run, ports: Ports) -> list[GangTask]:
    """The ranks that can still be writing, for who is about to stop them, or to start the next run.

    A rank whose start was never noted is looked for first: it would be taken for one that its node's boot has ended.
    """
    return [task for task in note_started(job, run, ports).tasks if may_write(task, ports)]


def may_write(task: GangTask, ports: Ports) -> bool:
    """Whether this rank can still be writing: it has not been seen to stop, and its node has neither rebooted since
    it began to run nor been given up for good. One that the scheduler has, and that has not begun, may begin on any
    boot: it is handed to the node when that is back."""
    node = ports.nodes.get(task.node_id)
    if task.has_stopped or node is None:
        return not task.has_stopped
    return not has_rebooted_since(task, node) and node.state is not NodeState.RETIRED


def has_rebooted_since(task: GangTask, node: Node) -> bool:
    """Whether the node has rebooted since. A boot reported late may be the one that the rank was started on."""
    began_at = task.started_at or task.asked_at
    was_up_before = began_at is not None and node.booted_at < began_at
    is_to_begin = task.task_id != "" and task.status == "PENDING"
    return node.boot_id != task.boot_id and not was_up_before and not is_to_begin


def await_end(run: Run, incident_id: str, ports: Ports) -> None:
    """Put the incident (or the job's own round) on the run's list of who waits for its end: its tasks' events go there.

    The run is written over what is stored: a task's end is recorded either before, and seen below, or after, by a
    writer who then sees the list.
    """

    def listed(stored: Run) -> Run:
        if incident_id in stored.end_awaited_by:
            return stored
        return replace(stored, end_awaited_by=(*stored.end_awaited_by, incident_id))

    change_run(run, ports, listed)


def recovery_of(job: Job, run: Run, ports: Ports) -> str | None:
    """Return the open incident on a node of the gang that may restart the job, or None."""
    nodes = (ports.nodes.get(task.node_id) for task in run.tasks)
    names = dict.fromkeys(node.open_incident for node in nodes if node is not None and node.open_incident)
    return next((str(name) for name in names if _may_bring_back(str(name), job, ports)), None)


def _may_bring_back(incident_id: str, job: Job, ports: Ports) -> bool:
    history = ports.incidents.history(incident_id)
    if not history.incident.is_under_way or history.incident.job_id != job.job_id:
        return False
    last = history.turns[-1].decision if history.turns else None
    # One that waits for the job to end is woken by that, and heals its node: the job is not its business.
    return last is None or last.awaits is not Awaited.JOB_END
