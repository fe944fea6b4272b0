"""Queries that list jobs. They read less than those about one job, and import less."""

from collections.abc import Sequence

from nodeheal.api.views import JobListRow
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.training_progress import TrainingProgress
from nodeheal.ports import Ports
from nodeheal.services.operators.look_at_job import list_jobs, progress_of


def jobs(pools: Sequence[str], ports: Ports, *, live_only: bool = False) -> list[JobListRow]:
    """Return the jobs of these pools: those that live first, then by name."""
    found = [job for job in list_jobs(pools, ports) if not (live_only and job.is_over)]
    progress = progress_of(found, ports)
    return [job_row(job, progress.get(job.job_id)) for job in found]


def job_row(job: Job, progress: TrainingProgress | None = None) -> JobListRow:
    """Return a job's row, with how far it has come."""
    return JobListRow(
        job=job.job_id,
        scheduler=job.scheduler,
        state=job.state,
        pool=job.pool,
        nodes=job.nodes,
        priority=job.priority,
        run=job.current_run,
        step=progress.step if progress else None,
        steps=job.steps,
        step_at=progress.at if progress else None,
        steps_per_second=progress.rate if progress else None,
        share=progress.share if progress else None,
        seconds_left=progress.seconds_left if progress else None,
        submission=job.submission,
        submitted_at=job.submitted_at,
        owner=str(job.owner) if job.owner else None,
        summary=job.summary or None,
    )
