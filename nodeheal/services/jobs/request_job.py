"""Does with a job what a person has asked for: submit it, stop it, or submit it again. Nobody else writes its record.

A person can repeat any of it. A submission registers the task definition first, then records the job, then starts its
workflow: a crash in between leaves at most an unused revision, or a job that the sweep starts.
"""

from dataclasses import replace
from typing import assert_never

from nodeheal.contract.acts import Actor, JobAct, JobRecorded, RestartJob, StopJob, SubmitJob
from nodeheal.domain.operation import job_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.engine import reconcile_all
from nodeheal.ports import Ports
from nodeheal.services.jobs.prepare_job import differences, placement_of, prepare_job
from nodeheal.services.jobs.submit_job import restart_job, submit_job
from nodeheal.services.operators.ask_to_stop import ask_to_stop


def request_job(act: JobAct, actor: Actor, key: str, ports: Ports, policy: RecoveryPolicy) -> JobRecorded:
    """Return the job as recorded. `key`: the same for the same act of a caller, however often it is sent.

    Raises NotFound, Conflict, NotAccepted, and ValueError where it can never run.
    """
    match act:
        case SubmitJob():
            return _submit(act, actor, key, ports, policy)
        case StopJob():
            return _stop(act, actor, ports)
        case RestartJob():
            job = restart_job(act.job, ports, submitted_by=actor.name, key=key)
            return JobRecorded(job=job.job_id, submission=job.submission)
    assert_never(act)


def _submit(act: SubmitJob, actor: Actor, key: str, ports: Ports, policy: RecoveryPolicy) -> JobRecorded:
    spec = act.spec
    plan = prepare_job(spec, ports, policy)
    job, known = replace(plan.job, submitted_by=actor.name, act_key=key), ports.jobs.get(plan.job.job_id)
    if known is None and spec.image is not None:
        definitions = ports.definitions_in(job.cluster)
        job = replace(job, task_definition=definitions.register(spec).name)
    is_repeat = known is not None and known.act_key == key  # by a call that died before it could answer
    recorded = submit_job(job, ports, is_idempotent=act.is_idempotent or is_repeat)
    is_new = recorded is job or is_repeat
    return JobRecorded(
        job=recorded.job_id,
        submission=recorded.submission,
        is_new=is_new,
        differs_in=() if is_new else tuple(differences(plan.job, recorded)),
        warnings=plan.doubts,
        placement=placement_of(plan),
    )


def _stop(act: StopJob, actor: Actor, ports: Ports) -> JobRecorded:
    """Record the wish, then wake the workflow. If the call breaks between, the workflow reads it at its next step."""
    job = ask_to_stop(act.job, actor.reason(act.why), ports)
    if not job.is_over:
        reconcile_all(job_owner(job.job_id), ports)
    return JobRecorded(job=job.job_id, submission=job.submission)
