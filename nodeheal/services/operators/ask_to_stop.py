"""Records that a person wants a job stopped, and every step of its workflow reads it; or gives up one that failed."""

from dataclasses import replace

from nodeheal.domain.jobs.job import Job
from nodeheal.ports import Ports
from nodeheal.services.operators.look_at_job import find_job
from nodeheal.services.saving import change_job


def ask_to_stop(job_id: str, why: str, ports: Ports) -> Job:
    """The job as recorded. A failed one waits for nobody after that; one that ended otherwise stays as it is.

    Asking again is harmless. Raises NotFound. The caller must then wake the workflow of one that is not over; else it
    reads the wish at its next step.
    """
    find_job(job_id, ports)  # raises NotFound with what there is

    def changed(job: Job) -> Job:
        can_stop = not job.is_over or job.waits_for_a_human
        return replace(job, stop_wanted=job.stop_wanted or why) if can_stop else job

    return change_job(job_id, ports, changed)
