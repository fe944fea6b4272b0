"""STOP_JOB: what still runs of a job is stopped: a person wants it, it cannot go on, or its nodes are to be checked."""

from typing import Any

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobStep, Next, VerbName
from nodeheal.domain.operation import Operation
from nodeheal.operations.gang import GangFacts, note, owner_of, ranks_left, read_gang, record_of
from nodeheal.operations.handler import Handler, VerbContext
from nodeheal.operations.record import plan_job_step, start_waiting
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_steps import DEADLINES, job_of_request, job_step_result, request_id_of
from nodeheal.services.jobs.runs import await_end, may_write
from nodeheal.services.jobs.start_gang import find_unnoted, stop_tasks

STOP_REASON = 255  # characters that a launcher keeps of one


def plan(request: JobRequest, ports: Ports) -> Operation:
    """The operation of this round."""
    seconds = DEADLINES[Next.STOP]
    return plan_job_step(request, ports, VerbName.STOP_JOB, owner_of(request), suffix="-stop", seconds=seconds)


def _start(operation: Operation, world: VerbContext) -> Operation:
    ports, request = world.ports, operation.job_request
    job = job_of_request(request, ports)
    runs = [find_unnoted(job, run, ports) for run in ports.jobs.runs(job.job_id)]
    run = next((run for run in runs if run.number == job.current_run), None)
    alive = [task for task in run.tasks if may_write(task, ports)] if run else []
    outstanding = tuple(task.placement for task in alive)
    operation = note(operation, ports, is_asked=True, run=run.number if run else 0, outstanding=outstanding)
    if run is not None and alive:
        await_end(run, request_id_of(request), ports)
        why = request.reason or f"run {run.number} is over"
        stop_tasks(job, run, alive, f"nodeheal: {why}"[:STOP_REASON], ports)
    return start_waiting(operation, ports)


def _observe(operation: Operation, facts: GangFacts) -> JobResult | None:
    """END; or CHECK, where the job has not ended; or CHOOSE, where what has stopped was of an earlier submission."""
    request, record = operation.job_request, record_of(operation)
    if not record.is_asked or ranks_left(record, facts.run):
        return None
    run = facts.run if record.run else None
    then = Next.END if request.ending is not None else Next.CHECK
    if then is Next.CHECK and run is not None and facts.job is not None and facts.job.was_submitted_after(run):
        return job_step_result(request, facts.now, JobStep.STOP, Next.CHOOSE, request.reason, nodes=())
    fields: dict[str, Any] = {"nodes": tuple(task.node_id for task in run.tasks) if run else request.nodes}
    fields["run"] = run.number if run else None
    if then is Next.CHECK and facts.job is not None:
        fields["deadline_seconds"] = facts.job.preflight.seconds
    last = request.last
    if last is not None:  # the reason, which the end needs
        fields |= {"ending": last.ending, "trouble": last.trouble, "incident_id": last.incident_id}
    return job_step_result(request, facts.now, JobStep.STOP, then, request.reason or "the gang has stopped", **fields)


HANDLER = Handler(_start, _observe, read_gang, may_repeat=True)
