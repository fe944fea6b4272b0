"""Ends a job: records how it ended, releases its nodes, claims and directory, notifies people."""

from dataclasses import replace

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobStep
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.operation import incident_owner
from nodeheal.operations.engine import reconcile_all
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import call_next_job, leave, release_claims
from nodeheal.services.jobs.job_steps import end_of_job, job_of_request, save_job
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.jobs.start_gang import written_off
from nodeheal.services.notify.notify_job_lifecycle import notify_of_end


def end_job(request: JobRequest, ports: Ports) -> JobResult:
    """Each part may be repeated after a crash. Raises ValueError for a request that does not say how it ends."""
    job = job_of_request(request, ports)
    last = request.last
    if last is None or last.ending is None:
        raise ValueError(f"{request.job_id} is to end, and the request does not say how")
    release_claims(job, ports, also=request.nodes)
    for run in ports.jobs.runs(job.job_id):
        if run.number > job.current_run:  # its launch crashed before the job pointed at it, and started nothing
            ports.jobs.save_run(written_off(run))
    leave(replace(job, state=last.ending), ports)
    # Last: from now on no sweep looks after what is left.
    job = save_job(
        ports,
        job.job_id,
        state=last.ending,
        summary=last.reason,
        trouble=last.trouble,
        left_down_by=last.incident_id,
        stop_wanted="",
    )
    call_next_job(job.pool, ports)
    _withdraw_questions(job, ports)
    lost = notify_of_end(job, request, ports)
    return end_of_job(request, JobStep.END, last.ending, f"{last.reason}{lost}", ports)


def _withdraw_questions(job: Job, ports: Ports) -> None:
    """Ends what asks whether the job may be restarted: nothing is left to restart."""
    _, run = current_run(job.job_id, ports)
    for task in run.tasks if run is not None else ():
        node = ports.nodes.get(task.node_id)
        if node is not None and node.open_incident is not None:
            reconcile_all(incident_owner(node.open_incident), ports)
