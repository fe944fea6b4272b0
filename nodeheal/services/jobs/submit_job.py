"""Take a job in: put it on record, and start its workflow."""

from dataclasses import replace
from typing import Never

from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.errors import Conflict, NotFound
from nodeheal.domain.jobs.job import Job
from nodeheal.ports import Ports


def submit_job(job: Job, ports: Ports, *, is_idempotent: bool = False) -> Job:
    """The job as recorded. Raises Conflict for one that exists; `is_idempotent`: it is returned, and a start
    that a crash has lost is made up for."""
    if not ports.jobs.save(job):
        known = ports.jobs.get(job.job_id)
        if known is None or not is_idempotent:
            refuse_known(known or job)
        job = known
    if not job.is_over:
        ports.workflows.run_job(job.job_id, job.submission)
    return job


def refuse_known(job: Job) -> Never:
    """Raises Conflict: the name is taken."""
    again = "--idempotent returns it"
    if job.is_over:
        again = f"`nodeheal jobs restart {job.job_id}` runs the old one again as it was, and not this file"
    raise Conflict(f"name: job {job.job_id} exists already ({job.state}); give another name, or {again}")


def restart_job(job_id: str, ports: Ports, submitted_by: str | None = None, key: str | None = None) -> Job:
    """Submit a job that is over once more, as it was. Raises NotFound, and Conflict for one that is not over.

    `key`: of the act; one that has submitted it before starts its workflow, if that was lost.
    """
    known = ports.jobs.get(job_id)
    if known is None:
        raise NotFound(f"no job {job_id} is known; see `nodeheal jobs list`")
    is_repeat = key is not None and known.act_key == key  # of a call that died before it could answer
    again = known if is_repeat else _submitted_again(known, ports, submitted_by, key)
    ports.workflows.run_job(again.job_id, again.submission)
    return again


def _submitted_again(known: Job, ports: Ports, submitted_by: str | None, key: str | None) -> Job:
    if not known.is_over:
        raise Conflict(f"{known.job_id} is {known.state}: stop it first")
    again = replace(
        known,
        state=JobState.SUBMITTED,
        submission=known.submission + 1,
        submitted_at=ports.clock(),
        submitted_by=submitted_by,
        act_key=key,
        stop_wanted="",
        trouble=None,
        left_down_by=None,
        summary="",
        run_said_to_start=0,
        run_said_to_run=0,
    )
    if not ports.jobs.save(again):
        raise Conflict(f"{known.job_id} has just been changed by somebody else; look, and try again")
    return again
