"""LOOK_AT_DIRECTORY: a node of a gang says what it sees at the job's checkpoint directory."""

from dataclasses import replace

from nodeheal.contract.health_event import CheckpointFound, Frozen, Sight
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobStep, Next, Outcome, VerbName
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.operation import Operation
from nodeheal.operations import fan_out
from nodeheal.operations.diagnose import REFUSED
from nodeheal.operations.fan_out import part_result, unanswered
from nodeheal.operations.find_checkpoint import ANSWERS, command
from nodeheal.operations.handler import Handler, OperationFacts, VerbContext, read_time
from nodeheal.operations.record import send_command
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_steps import job_result
from nodeheal.services.saving import node_of
from nodeheal.services.steps import where_to_look

ANSWER_SECONDS = 55  # the state machine waits 60
_REFUSED = f"{REFUSED}; agents do that which are older than this look"


class _Record(Frozen):
    """Where to look, and after how many seconds."""

    where: Checkpoints
    after: int


def ask_all(request: JobRequest, job: Job, after: int, world: VerbContext) -> None:
    """Ask every node. When all have answered the step is called again, and judges."""
    ports = world.ports
    question = fan_out.plan(request, ports, question_of(request.searches), ANSWER_SECONDS)
    parts = [plan(question, node_of(name, ports), job, after) for name in request.nodes]
    all_in = job_result(request, JobStep.FIND_CHECKPOINT, Next.LAUNCH, "all nodes have said what they see", ports)
    fan_out.ask(question, parts, all_in.model_copy(update={"facts": where_to_look(job)}), world)


def plan(question: Operation, node: Node, job: Job, after: int) -> Operation:
    """This node's part."""
    assert job.checkpoints is not None
    record = _Record(where=job.checkpoints, after=after)
    return fan_out.plan_part(question, VerbName.LOOK_AT_DIRECTORY, node.node_id, record)


def question_of(look: int) -> str:
    """Names the first look of this round, or the second."""
    return f"-look{look}"


def sight_of(question: Operation | None, node_id: str, ports: Ports) -> Sight | str | None:
    """What the node has seen, or why it cannot tell; None: it was not asked."""
    part = fan_out.close_part(question, node_id, ports)
    if part is None:
        return None
    answer = _answer(part)
    return answer.sight if answer is not None and answer.sight is not None else part.result.reason


def _start(operation: Operation, world: VerbContext) -> Operation | JobResult:
    ports, record = world.ports, _Record.model_validate_json(operation.data_json)
    node, look = node_of(operation.node_id, ports), command(record.where, SightAfter=str(record.after))
    operation = replace(operation, boot_id=node.boot_id)
    try:
        return send_command(operation, node, look, operation.deadline_at, ports)
    except NotFound as gone:
        return part_result(operation, ports.clock(), Outcome.UNKNOWN, str(gone))


def _observe(operation: Operation, facts: OperationFacts) -> JobResult | None:
    answer = _answer(operation)
    if answer is None:
        return unanswered(operation, facts, _REFUSED)
    if answer.sight is None:
        why = answer.reason or "it did not say what it sees"
        return part_result(operation, facts.now, Outcome.UNKNOWN, why)
    return part_result(operation, facts.now, Outcome.DONE, "it has said what it sees")


def _answer(operation: Operation) -> CheckpointFound | None:
    return CheckpointFound.model_validate_json(operation.answer_json) if operation.answer_json else None


HANDLER = Handler(_start, _observe, read_time, answers=ANSWERS)
