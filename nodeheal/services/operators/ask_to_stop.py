"""A person wants a job stopped: his wish goes on record, where every step of the job's workflow reads it."""

from dataclasses import replace

from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.job import Job
from nodeheal.ports import Ports
from nodeheal.services.operators.look_at_job import find_job
from nodeheal.services.steps import SAVE_TRIES


def ask_to_stop(job_id: str, why: str, ports: Ports) -> Job:
    """The job as recorded; one that is over stays as it is. Asking again is harmless. Raises NotFound.

    Whoever asks must then wake the workflow: a wish that nobody hears of is read at the next step.
    """
    for _ in range(SAVE_TRIES):
        job = find_job(job_id, ports)
        if job.is_over or ports.jobs.save(replace(job, stop_wanted=job.stop_wanted or why)):
            return job
    raise NotAccepted(f"{job_id} is being written by others; nothing was changed: try again")
