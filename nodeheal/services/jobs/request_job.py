"""Does with a job what a person has asked for: submit it, stop it, or submit it again. Nobody else writes its record.

A person can repeat any of it. A submission registers the task definition first, then records the job, then starts its
workflow: a crash in between leaves at most an unused revision, or a job that the sweep starts.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from nodeheal.contract.job_acts import JobAct, JobAnswer, JobRecorded, JobRefused, RestartJob, StopJob, SubmitJob
from nodeheal.contract.vocabulary import JobRefusal, SchedulerKind
from nodeheal.domain.errors import Conflict, NotAccepted, NotFound
from nodeheal.domain.operation import job_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.engine import reconcile_all
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskDefinitions
from nodeheal.services.jobs.prepare_job import differences, placement_of, prepare_job, scheduler_of_pool
from nodeheal.services.jobs.submit_job import restart_job, submit_job
from nodeheal.services.operators.ask_to_stop import ask_to_stop

DefinitionsOf = Callable[[SchedulerKind], TaskDefinitions]


def request_job(act: JobAct, ports: Ports, policy: RecoveryPolicy, definitions: DefinitionsOf) -> JobAnswer:
    """Return the job as recorded, or why nothing was done. Raises only what is a fault of nodeheal or of AWS."""
    try:
        match act:
            case SubmitJob():
                return _submit(act, ports, policy, definitions)
            case StopJob():
                return _stop(act, ports)
            case RestartJob():
                job = restart_job(act.name, ports)
                return JobRecorded(name=job.job_id, submission=job.submission)
        assert_never(act)
    except NotFound as error:
        return JobRefused(code=JobRefusal.NOT_FOUND, text=str(error))
    except Conflict as error:
        return JobRefused(code=JobRefusal.CONFLICT, text=str(error))
    except NotAccepted as error:
        return JobRefused(code=JobRefusal.NOT_NOW, text=str(error))
    except ValueError as error:
        return JobRefused(code=JobRefusal.UNFIT, text=str(error))


def _submit(act: SubmitJob, ports: Ports, policy: RecoveryPolicy, definitions: DefinitionsOf) -> JobRecorded:
    spec = act.spec
    known_definitions = definitions(scheduler_of_pool(spec.pool, ports))
    plan = prepare_job(spec, ports, policy, known_definitions)
    job = plan.job
    if ports.jobs.get(job.job_id) is None and spec.image is not None:
        job = replace(job, task_definition=known_definitions.register(spec).name)
    recorded = submit_job(job, ports, is_idempotent=act.is_idempotent)
    is_new = recorded is job
    return JobRecorded(
        name=recorded.job_id,
        submission=recorded.submission,
        is_new=is_new,
        differs_in=() if is_new else tuple(differences(plan.job, recorded)),
        warnings=plan.doubts,
        placement=placement_of(plan),
    )


def _stop(act: StopJob, ports: Ports) -> JobRecorded:
    """Record the wish, then wake the workflow. If the call breaks between, the workflow reads it at its next step."""
    job = ask_to_stop(act.name, " ".join(act.why.split()), ports)
    if not job.is_over:
        reconcile_all(job_owner(job.job_id), ports)
    return JobRecorded(name=job.job_id, submission=job.submission)
