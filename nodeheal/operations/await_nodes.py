"""AWAIT_NODES: a job waits in its pool's line until a node may be free, or until somebody stops the job."""

from dataclasses import replace

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.names import NODES_LINE, pool_line
from nodeheal.contract.vocabulary import JobStep, Next, VerbName
from nodeheal.domain.operation import Operation, job_owner
from nodeheal.operations.gang import GangFacts
from nodeheal.operations.handler import Handler, VerbContext
from nodeheal.operations.record import mark_sending, plan_job_step, start_waiting, update
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import YOUR_TURN, look_for_nodes, place_of, waits_before
from nodeheal.services.jobs.job_steps import DEADLINES, job_of_request, job_step_result


def plan(request: JobRequest, ports: Ports) -> Operation:
    """The operation of this round."""
    seconds = DEADLINES[Next.AWAIT_NODES]
    owner = job_owner(request.job_id)
    return plan_job_step(request, ports, VerbName.AWAIT_NODES, owner, suffix="-nodes", seconds=seconds)


def _start(operation: Operation, world: VerbContext) -> Operation:
    ports = world.ports
    job = job_of_request(operation.job_request, ports)
    for earlier in ports.operations.open_of(operation.owner):
        if earlier.verb is VerbName.AWAIT_NODES and earlier.operation_id != operation.operation_id:
            update(earlier, ports, Operation.delivered)  # its deadline has passed, and no workflow waits for it
    line = (pool_line(NODES_LINE, job.pool), place_of(job))
    operation = mark_sending(replace(operation, line=line), ports)
    # A node that became free between the choice and the record has woken no job.
    if look_for_nodes(job, ports.pauses.read(), ports, world.policy).nodes and not waits_before(job, ports):
        operation = replace(operation, answer_json=YOUR_TURN)
    return start_waiting(operation, ports)


def _read(operation: Operation, ports: Ports) -> GangFacts:
    return GangFacts(ports.clock(), job=ports.jobs.get(operation.job_request.job_id))


def _observe(operation: Operation, facts: GangFacts) -> JobResult | None:
    is_to_stop = facts.job is not None and facts.job.stop_wanted
    if not operation.answer_json and not is_to_stop:
        return None
    why = "a node may have become free"
    return job_step_result(operation.job_request, facts.now, JobStep.CHOOSE, Next.CHOOSE, why)


HANDLER = Handler(_start, _observe, _read, may_repeat=True)
