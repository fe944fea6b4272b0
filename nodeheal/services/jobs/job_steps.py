"""Small things that every step of a job does the same way."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Trouble
from nodeheal.domain.errors import NotFound, Superseded
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.saving import change_job
from nodeheal.services.steps import where_to_look

QUICK_SECONDS = 60
# How long each step that waits may take. A check's time is the job's own to say.
DEADLINES = {
    Next.AWAIT_NODES: 900,  # what becomes free says so; this is for what could not
    Next.LAUNCH: 1_800,  # an image of tens of gigabytes is pulled by every node first
    Next.WATCH: 364 * 86_400,  # an execution of Step Functions lasts a year at most
    Next.SETTLE: 2,  # a finding is on the bus within a second of its kernel line
    Next.STOP: 900,  # a task has two minutes after SIGTERM, or what its agent is set to
}


def job_result(
    request: JobRequest, step: JobStep, then: Next, reason: str, ports: Ports, outcome: Outcome = Outcome.DONE
) -> JobResult:
    """How the step went, as of now. Further fields: `model_copy(update=…)`."""
    return job_step_result(request, ports.clock(), step, then, reason, outcome)


def job_step_result(
    request: JobRequest,
    now: datetime,
    step: JobStep,
    then: Next,
    reason: str,
    outcome: Outcome = Outcome.DONE,
    **fields: Any,
) -> JobResult:
    """How a job's step went, and where the job goes from here."""
    result = JobResult(
        step=step,
        job_id=request.job_id,
        outcome=outcome,
        then=then,
        reason=reason,
        finished_at=now,
        nodes=request.nodes,
        deadline_seconds=DEADLINES.get(then, QUICK_SECONDS),
    )
    return result.model_copy(update=fields)


def to_launch(request: JobRequest, step: JobStep, job: Job, reason: str, ports: Ports) -> JobResult:
    """The job can be launched; where it has checkpoints, the newest one is looked for before."""
    ready = job_result(request, step, Next.LAUNCH, reason, ports)
    return ready.model_copy(update={"facts": where_to_look(job)})


def network_test_or_launch(
    request: JobRequest, step: JobStep, job: Job, reason: str, ports: Ports, policy: RecoveryPolicy
) -> JobResult:
    """Every node is proven by itself: now the network between them, where pool and job want that; else the launch."""
    wanted = policy.pool(job.pool).fabric.tests and job.preflight.fabric and job.preflight.level > 0
    if not wanted or job.nodes < 2:
        return to_launch(request, step, job, reason, ports)
    more = job_result(request, step, Next.CHECK, f"{reason}; the network between them is tested", ports)
    return more.model_copy(update={"pairs": True, "deadline_seconds": job.preflight.seconds})


def end_of_job(
    request: JobRequest, step: JobStep, ending: JobState, reason: str, ports: Ports, trouble: Trouble | None = None
) -> JobResult:
    """The job ends, and so. `trouble`: why a human has it, where one has."""
    outcome = Outcome.DONE if ending is JobState.COMPLETED else Outcome.REFUSED
    known = {"ending": ending, "trouble": trouble}
    return job_result(request, step, Next.END, reason, ports, outcome).model_copy(update=known)


def stop_if_wanted(request: JobRequest, step: JobStep, job: Job, ports: Ports) -> JobResult | None:
    """Goes to STOP if a person wants the job stopped. None: nobody does."""
    if not job.stop_wanted:
        return None
    stopped = job_result(request, step, Next.STOP, f"stopped by a person: {job.stop_wanted}", ports)
    return stopped.model_copy(update={"ending": JobState.CANCELLED})


def job_of_request(request: JobRequest, ports: Ports) -> Job:
    """The job. Raises NotFound; Superseded for a submission that is not the newest one."""
    job = ports.jobs.get(request.job_id)
    if job is None:
        raise NotFound(f"no job {request.job_id} in the table")
    if job.submission != request.submission:
        raise Superseded(f"{request.job_id} was submitted again: this is submission {request.submission}")
    return job


def save_job(ports: Ports, job_id: str, **changes: object) -> Job:
    """Write changes to a job over whatever version is stored now. For fields that one writer owns."""
    if "summary" in changes:
        changes = {"run_said_to_start": 0, "run_said_to_run": 0, **changes}
    return change_job(job_id, ports, lambda job: replace(job, **changes))  # type: ignore[arg-type]


def job_token(request: JobRequest) -> str:
    """The task token. Raises ValueError: a step that waits was called by a state that does not."""
    if not request.task_token:
        raise ValueError(f"a step of {request.job_id} was called without a task token")
    return request.task_token


def request_id_of(request: JobRequest) -> str:
    """Names this round of a job to nodes and back."""
    return f"{request.job_id}-{request.submission}-{request.round}"
