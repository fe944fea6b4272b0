"""The record of an operation: made from a request, changed under compare-and-swap, and kept while something is sent."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.json_text import read_json
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import VerbName
from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted, NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.saving import save_changed

Change = Callable[[Operation], Operation]
# A workflow's deadline begins before the function that stores the operation, which may take so long.
_BEGINS_LATER = timedelta(seconds=60)


def has_time_left(operation: Operation, first_deadline_at: datetime | None, now: datetime) -> bool:
    """Whether a call broke well before the deadline of the first one. Later calls do not extend it."""
    return (first_deadline_at or operation.deadline_at) - now > _BEGINS_LATER


def plan_step(
    request: StepRequest, ports: Ports, verb: VerbName, owner: str, *, suffix: str = "", seconds: int | None = None
) -> Operation:
    """The operation of a recovery's step, not stored yet. The same turn gives the same name."""
    deadline = ports.clock() + timedelta(seconds=seconds or request.decision.deadline_seconds)
    return Operation(
        owner=owner,
        operation_id=f"{request.incident_id}-{request.operation_turn}{suffix}",
        verb=verb,
        token=request.task_token or "",
        incident_id=request.incident_id,
        deadline_at=deadline,
        request_json=request.model_dump_json(exclude={"task_token"}),
        node_id=request.decision.node_id,
    )


def plan_job_step(
    request: JobRequest, ports: Ports, verb: VerbName, owner: str, *, suffix: str = "", seconds: int
) -> Operation:
    """The operation of a job's step, not stored yet. The same round gives the same name."""
    name = f"{request.job_id}-{request.submission}-{request.round}"
    return Operation(
        owner=owner,
        operation_id=f"{name}{suffix}",
        verb=verb,
        token=request.task_token or "",
        incident_id=name,
        deadline_at=ports.clock() + timedelta(seconds=seconds),
        request_json=request.model_dump_json(exclude={"task_token"}),
    )


def update(operation: Operation, ports: Ports, change: Change) -> Operation:
    """Write a change over whatever version is stored; the operation as it is then.

    Raises NotAccepted where others write it all the time.
    """

    def read() -> Operation:
        return ports.operations.get(operation.owner, operation.operation_id) or operation

    return save_changed(operation, read, ports.operations.save, change, operation.operation_id)


def send(operation: Operation, call: Callable[[str], str], ports: Ports) -> Operation:
    """Send once, by `call(request_id)`, which gives a reference.

    The state SENDING is stored first. An operation found in SENDING is not sent again, because it may have been
    accepted. If the other side provably did not accept it, it is PLANNED again, and the error is raised.
    """
    if operation.state is not OperationState.PLANNED:
        return operation
    nonce = operation.nonce or uuid4().hex
    sending = update(operation, ports, lambda operation: _sending(operation, nonce))
    if (sending.state, sending.nonce) != (OperationState.SENDING, nonce):
        return sending  # a call at the same time was quicker
    try:
        reference = call(sending.request_id)
    except (NotAccepted, NotFound, MachineRefused, NoCapacity):
        update(sending, ports, lambda operation: replace(operation, state=OperationState.PLANNED))
        raise
    return update(sending, ports, lambda operation: _sent(operation, reference))


def send_command(operation: Operation, node: Node, command: Command, expires_at: datetime, ports: Ports) -> Operation:
    """Send a command to the node, once, as `send` does. The node answers under the operation's request id."""

    def call(request_id: str) -> str:
        named = Command(command.document, {"RequestId": request_id, **command.parameters})
        return ports.commands.send(node, named, expires_at)

    return send(operation, call, ports)


def read_printed(output: str) -> dict[str, Any]:
    """The JSON object that a node's command has printed, on its last line. Raises ValueError where it printed none."""
    last = output.strip().rpartition("\n")[2]
    printed = read_json(last)
    if not isinstance(printed, dict):
        raise ValueError(f"{last[:64]!r} is no JSON object")
    return printed


def mark_sending(operation: Operation, ports: Ports) -> Operation:
    """Store an operation before people are notified of it."""
    return update(operation, ports, lambda operation: replace(operation, state=OperationState.SENDING))


def start_waiting(operation: Operation, ports: Ports) -> Operation:
    """Store an operation for which nothing is sent."""
    answer = operation.answer_json

    def started(operation: Operation) -> Operation:
        return (
            operation
            if operation.is_over
            else replace(operation, state=OperationState.STARTED, answer_json=operation.answer_json or answer)
        )

    return update(operation, ports, started)


def _sending(operation: Operation, nonce: str) -> Operation:
    if operation.state is not OperationState.PLANNED:
        return operation
    return replace(operation, state=OperationState.SENDING, nonce=nonce)


def _sent(operation: Operation, reference: str) -> Operation:
    state = OperationState.STARTED if operation.state is OperationState.SENDING else operation.state
    return replace(operation, reference=reference, state=state)
