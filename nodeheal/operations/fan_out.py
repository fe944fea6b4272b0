"""FAN_OUT: asks many nodes of a job one question. Each node answers its own part; the last answer ends the operation.

No answer writes this operation, so that hundreds of nodes do not contend for one item. Each answer looks for a part
that is still open, from the last one asked to the first. That is mostly one read, because nodes answer about in the
order in which they were asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobStep, Next, Outcome, VerbName
from nodeheal.domain.operation import Operation, job_owner, node_owner
from nodeheal.operations.diagnose import REFUSED
from nodeheal.operations.engine import begin, end
from nodeheal.operations.handler import Handler, OperationFacts, VerbContext
from nodeheal.operations.record import plan_job_step, start_waiting
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_steps import job_step_result


class _Record(Frozen):
    """`parts`: (owner, operation), in the order of asking. `all_in`: the result when each of them has its own."""

    parts: tuple[tuple[str, str], ...]
    all_in: JobResult


@dataclass(frozen=True)
class _Facts(OperationFacts):
    """`is_complete`: each node has answered."""

    is_complete: bool = False


def plan(request: JobRequest, ports: Ports, suffix: str, seconds: int) -> Operation:
    """Returns the operation of this round's question. It is stored without the names of all nodes."""
    slim, owner = request.model_copy(update={"last": None}), job_owner(request.job_id)
    return plan_job_step(slim, ports, VerbName.FAN_OUT, owner, suffix=suffix, seconds=seconds)


def plan_part(question: Operation, verb: VerbName, node_id: str, record: Frozen, suffix: str = "") -> Operation:
    """Returns the part of one node. `suffix` ends its name, where one question asks a node twice."""
    return replace(
        question,
        owner=node_owner(node_id),
        operation_id=f"{question.operation_id}{suffix}",
        verb=verb,
        token="",
        node_id=node_id,
        data_json=record.model_dump_json(),
        parent=(question.owner, question.operation_id),
    )


def ask(question: Operation, parts: Sequence[Operation], all_in: JobResult, world: VerbContext) -> None:
    """Ask each node, once. The workflow resumes with `all_in` when all have answered."""
    record = _Record(parts=tuple((part.owner, part.operation_id) for part in parts), all_in=all_in)
    begin(replace(question, data_json=record.model_dump_json()), world)
    for part in parts:
        begin(part, world)


def part_result(part: Operation, now: datetime, outcome: Outcome, reason: str) -> JobResult:
    """Returns the answer of a node, or why it is missing."""
    return job_step_result(part.job_request, now, JobStep.CHECK, Next.CHECK, reason, outcome)


def unanswered(part: Operation, facts: OperationFacts, refused: str = REFUSED) -> JobResult | None:
    """The result of a node that has not answered; None while it still may."""
    if part.has_command_failed:
        return part_result(part, facts.now, Outcome.UNKNOWN, refused)
    return part_result(part, facts.now, Outcome.UNKNOWN, "no answer in time") if facts.is_final else None


def find(request: JobRequest, suffix: str, ports: Ports) -> Operation | None:
    """The question of this round, if it was asked."""
    planned = plan(request, ports, suffix, 0)
    return ports.operations.get(planned.owner, planned.operation_id)


def stop_waiting(question: Operation | None, ports: Ports) -> None:
    """Ends the wait of the workflow. Parts that are still open end when their nodes answer."""
    if question is not None and not question.is_over:
        end(question, ports)


def close_part(question: Operation | None, node_id: str, ports: Ports, suffix: str = "") -> Operation | None:
    """Ends and returns the part of one node. A later answer changes nothing. None: the node was not asked."""
    if question is None:
        return None
    part = ports.operations.get(node_owner(node_id), f"{question.operation_id}{suffix}")
    return part if part is None or part.is_over else end(part, ports)


def _start(operation: Operation, world: VerbContext) -> Operation:
    return start_waiting(operation, world.ports)


def _read(operation: Operation, ports: Ports) -> _Facts:
    parts = (ports.operations.get(*part) for part in reversed(_record(operation).parts))
    return _Facts(ports.clock(), is_complete=all(part is not None and part.is_over for part in parts))


def _observe(operation: Operation, facts: _Facts) -> JobResult | None:
    all_in = _record(operation).all_in.model_copy(update={"finished_at": facts.now})
    if facts.is_complete:
        return all_in
    if not facts.is_final:
        return None
    return all_in.model_copy(update={"outcome": Outcome.TIMED_OUT, "reason": "not all nodes have answered in time"})


def _record(operation: Operation) -> _Record:
    return _Record.model_validate_json(operation.data_json)


HANDLER = Handler(_start, _observe, _read)
