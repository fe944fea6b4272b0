"""Repairs what a crash left of jobs: a lost start, and nodes that are still marked for a job that is over."""

from datetime import timedelta

from nodeheal.contract.names import NODES_LINE, pool_line
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.operation import job_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.engine import reconcile_all
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import call_next_job, leave, look_for_nodes

START_SECONDS = 60  # a workflow starts within a second of its submission


def sweep_jobs(pool: str, ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """The jobs that were seen to. Safe to repeat: starting what runs already does nothing."""
    seen_to = []
    for job in ports.job_notes.in_pool(pool, live_only=True):
        if _has_lost_its_start(job, ports):
            ports.workflows.run_job(job.job_id, job.submission)
            seen_to.append(job.job_id)
        elif job.is_over:  # its workflow broke, and gave it to a human without a function
            leave(job, ports)
            ports.jobs.save(job)  # again, so that the list of live jobs no longer has it
            seen_to.append(job.job_id)
        elif job.held_at is not None:
            reconcile_all(job_owner(job.job_id), ports)  # no event reports the end of a pause
    if seen_to or _could_start(pool, ports, policy):
        call_next_job(pool, ports)
    return seen_to


def _could_start(pool: str, ports: Ports, policy: RecoveryPolicy) -> bool:
    """Whether there is room for the first job in line. No event reports the end of a pause or of a probation."""
    first = next(iter(ports.operations.queued(pool_line(NODES_LINE, pool))), None)
    job = ports.jobs.get(first.job_request.job_id) if first is not None else None
    return job is not None and bool(look_for_nodes(job, ports.pauses.read(), ports, policy).nodes)


def _has_lost_its_start(job: Job, ports: Ports) -> bool:
    """Nothing has been noted of it since it was submitted."""
    if job.state is not JobState.SUBMITTED or job.submitted_at is None or job.summary:
        return False
    return job.submitted_at + timedelta(seconds=START_SECONDS) < ports.clock()
