"""Queries about a job's submission: what it would do, and what came of it."""

from collections.abc import Callable

from nodeheal.api.job_list import job_row
from nodeheal.api.job_queries import standing
from nodeheal.api.submission_views import PlannedJob, SubmittedJob
from nodeheal.contract.acts import JobRecorded
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.jobs import prepare_job as preparing
from nodeheal.services.jobs.job_line import line_in_words, stands_before
from nodeheal.services.jobs.prepare_job import placement_of, prepare_job
from nodeheal.services.jobs.submit_job import refuse_known
from nodeheal.services.operators.look_at_job import find_job


def file_doubts(spec: JobSpec) -> list[str]:
    """Return what is probably a mistake in a job file, judged from the file alone."""
    return preparing.file_doubts(spec)


def planned(spec: JobSpec, ports: Ports, policy: RecoveryPolicy, *, is_idempotent: bool) -> PlannedJob:
    """Return what a submission would do. Raises ValueError, NotFound and Conflict where it would be refused."""
    plan = prepare_job(spec, ports, policy)
    known = ports.jobs.get(spec.name)
    if known is not None and not is_idempotent:
        refuse_known(known)
    ahead = stands_before(plan.job, ports)
    return PlannedJob(
        task_definition=ports.definitions_in(plan.job.cluster).shown(spec) if spec.image else plan.job.task_definition,
        placement=placement_of(plan),
        in_line_before=standing(ahead),
        warnings=plan.doubts,
        accelerators=plan.job.accelerators,
        in_line=line_in_words(ahead) if ahead else "",
    )


def submitted(
    spec: JobSpec, answer: JobRecorded, ports: Ports, is_confirmed: Callable[[Owner], bool | None]
) -> SubmittedJob:
    """Return the job on record, with what the control plane answered. `is_confirmed`: whether an owner gets emails;
    None: that cannot be read.
    """
    job = find_job(answer.job, ports)
    ahead = stands_before(job, ports)
    return SubmittedJob(
        **dict(job_row(job)),
        is_new=answer.is_new,
        differs_in=answer.differs_in,
        placement=answer.placement,
        in_line_before=standing(ahead),
        owner_confirmed=is_confirmed(job.owner) if job.owner else None,
        warnings=answer.warnings,
        in_line=line_in_words(ahead) if ahead else "",
        owner_address=job.owner.address if job.owner else "",
    )
