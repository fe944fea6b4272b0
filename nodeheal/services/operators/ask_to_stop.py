"""Records that a person wants a job stopped. Every step of the job's workflow reads it."""

from dataclasses import replace

from nodeheal.domain.jobs.job import Job
from nodeheal.ports import Ports
from nodeheal.services.operators.look_at_job import find_job
from nodeheal.services.saving import change_job


def ask_to_stop(job_id: str, why: str, ports: Ports) -> Job:
    """The job as recorded; one that is over stays as it is. Asking again is harmless. Raises NotFound.

    The caller must then wake the workflow; else it reads the wish at its next step.
    """
    find_job(job_id, ports)  # raises NotFound with what there is
    return change_job(
        job_id, ports, lambda job: job if job.is_over else replace(job, stop_wanted=job.stop_wanted or why)
    )
