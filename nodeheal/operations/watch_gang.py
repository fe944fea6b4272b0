"""WATCH_GANG: wait from run to run until the job has ended, or has failed and no incident will restart it."""

from dataclasses import dataclass
from typing import Any

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, VerbName
from nodeheal.domain.jobs.gang import RunStatus, ending_text, first_failure, run_status, stopped_by_a_person
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.operation import Operation, OperationState, job_owner
from nodeheal.operations.gang import GangFacts
from nodeheal.operations.handler import Handler, NextActDue, VerbContext
from nodeheal.operations.record import plan_job_step, start_waiting
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_steps import DEADLINES, job_of_request, job_step_result, save_job
from nodeheal.services.jobs.runs import current_run, recovery_of
from nodeheal.services.notify.notify_job_lifecycle import notify_of_start

_MAY_BE_BROUGHT_BACK = (RunStatus.FAILED, RunStatus.STOPPED_BY_US)


@dataclass(frozen=True)
class WatchFacts(GangFacts):
    """`is_recovering`: an incident may bring the gang back. `held`: why a failure is not handled yet, in words."""

    is_recovering: bool = False
    held: str = ""


def plan(request: JobRequest, ports: Ports) -> Operation:
    """The operation of this round."""
    seconds = DEADLINES[Next.WATCH]
    owner = job_owner(request.job_id)
    return plan_job_step(request, ports, VerbName.WATCH_GANG, owner, suffix="-watch", seconds=seconds)


def _start(operation: Operation, world: VerbContext) -> Operation:
    ports = world.ports
    if operation.state is not OperationState.PLANNED:
        return _hold(operation, ports)
    job = job_of_request(operation.job_request, ports)
    if job.state is JobState.RUNNING:
        lost = notify_of_start(job, ports)
        save_job(
            ports, job.job_id, summary=f"run {job.current_run} is under way{lost}", run_said_to_run=job.current_run
        )
    return start_waiting(operation, ports)


def _hold(operation: Operation, ports: Ports) -> Operation:
    """Records once that a pause holds the failure. The sweep observes again until the pause is over."""
    held = _read(operation, ports).held
    if held:
        save_job(ports, operation.job_request.job_id, summary=held, held_at=ports.clock())
    return operation


def _read(operation: Operation, ports: Ports) -> WatchFacts:
    """Incidents and pauses are read only where the run has failed."""
    job, run = current_run(operation.job_request.job_id, ports)
    if job is None or run is None or job.stop_wanted or run_status(run) not in _MAY_BE_BROUGHT_BACK:
        return WatchFacts(ports.clock(), job=job, run=run)
    is_recovering = recovery_of(job, run, ports) is not None
    held = "" if is_recovering else _why_held(job, run, ports)
    return WatchFacts(ports.clock(), job=job, run=run, is_recovering=is_recovering, held=held)


def _why_held(job: Job, run: Run, ports: Ports) -> str:
    """Returns the pause that keeps a failure from being handled, in words. Empty: there is none."""
    broke = first_failure(run) if run_status(run) is RunStatus.FAILED else None
    if broke is None or broke.never_ran:
        return ""
    pauses, now = ports.pauses.read(), ports.clock()
    held = pauses.why_pool_is_paused(job.pool, now) or pauses.why_paused(broke.task.node_id, job.pool, now)
    return f"waits for the end of a pause, and is handled then: {held}; {broke.words}" if held else ""


def _observe(operation: Operation, facts: WatchFacts) -> JobResult | NextActDue | None:
    """Returns the job's next step. None: the job runs, or an incident will restart it."""
    job, run = facts.job, facts.run
    if job is None:
        return None
    if job.stop_wanted:
        return _cancelled(operation, facts, f"stopped by a person: {job.stop_wanted}")
    if run is None or facts.is_recovering:
        return None
    status = run_status(run)
    if status is RunStatus.UNDER_WAY:
        return None
    if status is RunStatus.SUCCEEDED:
        return _result(operation, facts, Next.END, ending_text(run), ending=JobState.COMPLETED)
    if status is RunStatus.STOPPED_BY_A_PERSON:
        return _cancelled(operation, facts, stopped_by_a_person(run))
    if facts.held:
        return NextActDue() if job.summary != facts.held or job.held_at is None else None
    failed = f"run {run.number} has failed, and nobody is bringing it back yet"
    return _result(operation, facts, Next.ATTRIBUTE, failed, outcome=Outcome.FAILED)


def _cancelled(operation: Operation, facts: WatchFacts, why: str) -> JobResult:
    return _result(operation, facts, Next.STOP, why, ending=JobState.CANCELLED)


def _result(operation: Operation, facts: WatchFacts, then: Next, why: str, **fields: Any) -> JobResult:
    run, seconds = facts.run, DEADLINES[Next.STOP]
    fields |= {"run": run.number if run else None, "nodes": tuple(task.node_id for task in run.tasks) if run else ()}
    return job_step_result(
        operation.job_request, facts.now, JobStep.WATCH, then, why, deadline_seconds=seconds, **fields
    )


HANDLER = Handler(_start, _observe, _read)
