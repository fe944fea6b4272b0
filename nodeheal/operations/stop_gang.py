"""STOP_GANG: every rank of a job is asked to end, each with its own grace; their ends end the operation."""

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome, VerbName
from nodeheal.domain.operation import Operation
from nodeheal.operations.gang import (
    GangFacts,
    note,
    owner_of,
    ranks_left,
    read_gang,
    record_of,
    refresh_ranks,
    where_they_are,
)
from nodeheal.operations.handler import Handler, VerbContext, step_result
from nodeheal.operations.record import plan_step, start_waiting
from nodeheal.ports import Ports
from nodeheal.services.jobs.ask_for_checkpoint import ask_for_checkpoint
from nodeheal.services.jobs.runs import await_end, current_run, is_elsewhere, is_newer_than_fault, left_of
from nodeheal.services.jobs.start_gang import stop_tasks
from nodeheal.services.steps import add_timeline_entry, where_to_look


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn. The launch that follows in the same turn has a name of its own."""
    return plan_step(request, ports, VerbName.STOP_GANG, owner_of(request), suffix="-stop")


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    ports, request = world.ports, operation.step
    _, run = current_run(request.decision.job_id, ports)
    if run is not None and is_newer_than_fault(run, request, ports):
        return step_result(operation, ports.clock(), Outcome.DONE, f"run {run.number} was launched after the fault")
    return stop_ranks(operation, world)


def stop_ranks(operation: Operation, world: VerbContext, aside: str = "") -> Operation:
    """Ask the ranks of the decision's job to end. Safe to repeat: a rank that is asked twice ends once.

    `aside`: what the step has to report besides.
    """
    ports, request = world.ports, operation.step
    job, run = current_run(request.decision.job_id, ports)
    alive = left_of(job, run, ports) if job and run else []
    if job is None or run is None or not alive or is_elsewhere(run, request):
        return start_waiting(note(operation, ports, is_asked=True, outstanding=(), aside=aside), ports)
    outstanding = tuple(task.placement for task in alive)
    operation = note(operation, ports, is_asked=True, run=run.number, outstanding=outstanding, aside=aside)
    await_end(run, request.incident_id, ports)
    ask_for_checkpoint(job, alive, request, ports, world.policy)
    add_timeline_entry(
        request, ports, "gang-stopping", f"stopping {job.job_id}, with its grace: {where_they_are(alive)}"
    )
    stop_tasks(job, run, alive, f"nodeheal: recovery {request.incident_id}", ports)
    return start_waiting(operation, ports)


def _observe(operation: Operation, facts: GangFacts) -> StepResult | None:
    record = record_of(operation)
    left = ranks_left(record, facts.run)
    if record.is_asked and not left:
        is_known = facts.job is not None and facts.job.knows_where_to_go_on
        where = None if is_known else where_to_look(facts.job)
        return step_result(operation, facts.now, Outcome.DONE, "the gang has stopped", facts=where)
    if not facts.is_final:
        return None
    seconds = operation.step.decision.deadline_seconds
    why = f"not seen to stop: {where_they_are(left)}" if left else "they were not asked to stop"
    return step_result(operation, facts.now, Outcome.TIMED_OUT, f"not all ranks stopped within {seconds} s: {why}")


HANDLER = Handler(_start, _observe, read_gang, refresh_ranks, may_repeat=True, is_half_of_step=True)
