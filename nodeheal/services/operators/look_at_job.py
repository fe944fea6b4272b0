"""Reads jobs, and how far they have come, for a person who asks."""

from collections.abc import Sequence

from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.training_progress import TrainingProgress, training_progress
from nodeheal.ports import Ports


def find_job(job_id: str, ports: Ports) -> Job:
    """The job. Raises NotFound."""
    job = ports.jobs.get(job_id)
    if job is None:
        raise NotFound(f"no job {job_id} is known; see `nodeheal jobs list`")
    return job


def progress_of(jobs: Sequence[Job], ports: Ports) -> dict[str, TrainingProgress]:
    """How far each of these jobs has come, by its id; those that show no step, or do not run, are left out."""
    running = [job for job in jobs if job.current_run and not job.is_over]
    runs = {job.job_id: ports.jobs.get_run(job.job_id, job.current_run) for job in running}
    heartbeats = ports.heartbeats.of({task.node_id for run in runs.values() if run for task in run.tasks})
    by_job = {job.job_id: training_progress(job, runs[job.job_id], heartbeats) for job in running}
    return {name: progress for name, progress in by_job.items() if progress is not None}
