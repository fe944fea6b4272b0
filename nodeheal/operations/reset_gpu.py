"""RESET_GPU: a node resets one GPU and stays on its boot. The node's own answer ends the operation; diagnostics prove
it. If the node cannot reset it, the next step of the ladder is a reboot.
"""

import re
from dataclasses import replace
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nodeheal.contract import words
from nodeheal.contract.health_event import REASON_CHARACTERS, Frozen, NodeAnswer
from nodeheal.contract.results import Refused, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Refusal, VerbName
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.fleet.unmanaged_tasks import tasks_left_running
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.operations.diagnose import REFUSED
from nodeheal.operations.handler import Answers, Handler, OperationFacts, VerbContext, read_node, step_result
from nodeheal.operations.record import plan_step, read_printed, send_command, update
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.recovery.reserve_attempt import give_attempt_back, reserve_for_node_or_why_not
from nodeheal.services.saving import node_of
from nodeheal.services.steps import add_timeline_entry, enter_state

NodeOutcome = Literal[Outcome.DONE, Outcome.REFUSED, Outcome.FAILED]


class GpuResetAnswer(Frozen):
    """How the reset went, from the node's event or from the output of its command."""

    outcome: NodeOutcome
    reason: Annotated[str, Field(max_length=REASON_CHARACTERS)] = ""


class GpuResetFinished(NodeAnswer):
    """The answer to a command that resets a GPU."""

    detail_type: ClassVar[str] = "GPU Reset Finished"

    outcome: NodeOutcome = Field(description="DONE: the driver says that it was reset; REFUSED: it was not tried")
    reason: Annotated[str, Field(max_length=REASON_CHARACTERS)] = Field(
        default="", description="what the driver's tool said, or why it was not tried"
    )


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.RESET_GPU, node_owner(request.decision.node_id))


def command(gpu: str) -> Command:
    """The reset of the GPU with this PCI address or UUID."""
    return Command("reset-gpu", {"Gpu": gpu})


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    ports, request = world.ports, operation.step
    node, now = node_of(operation.node_id, ports), ports.clock()
    why_not = _why_not_reset(request, ports)
    if why_not:
        return step_result(operation, now, Outcome.REFUSED, why_not)
    why_not = reserve_for_node_or_why_not(node, request, ports)
    if why_not:
        give_attempt_back(request, ports)
        return step_result(operation, now, Outcome.REFUSED, why_not)
    if request.decision.boot_id not in ("", node.boot_id):
        give_attempt_back(request, ports, "it has rebooted by itself")
        return _rebooted(operation, node, now)
    recovering = moved(node, NodeState.RECOVERING, f"resetting a GPU: {request.decision.reason}", now)
    enter_state(ports, node, recovering.state, recovering.state_reason)
    gpu = request.decision.component
    operation = replace(operation, boot_id=operation.boot_id or node.boot_id)
    try:
        operation = send_command(operation, node, command(gpu), operation.deadline_at, ports)
    except NotFound as gone:  # SSM has taken nothing
        give_attempt_back(request, ports)
        return step_result(operation, now, Outcome.FAILED, str(gone))
    text = f"{node.node_id} is to reset GPU {gpu}, on boot {node.boot_id[:8]} only (SSM command {operation.reference})"
    add_timeline_entry(request, ports, "reset-sent", text)
    return operation


def _why_not_reset(request: StepRequest, ports: Ports) -> str:
    """Returns why this node's GPU must not be reset, before an attempt is spent. Empty: it may be.

    Tasks that the isolation left running are not stopped for a reset either. They may use any GPU.
    """
    if not re.fullmatch(words.GPU, request.decision.component):  # it comes from a node, and goes into a command
        return "the fault names no GPU by its address or UUID"
    left = tasks_left_running(ports.incidents.history(request.incident_id).timeline)
    return f"tasks of others were left to run on the node: {', '.join(left)}" if left else ""


def _rebooted(operation: Operation, node: Node, now: datetime) -> StepResult:
    why = f"it has booted since that was decided (boot {node.boot_id[:8]})"
    facts = Refused(code=Refusal.NEW_BOOT, boot_id=node.boot_id)
    return step_result(operation, now, Outcome.REFUSED, why, facts=facts)


def _observe(operation: Operation, facts: OperationFacts) -> StepResult | None:
    """Returns FAILED where no answer came: a node must not be replaced because it did not report a reset."""
    if operation.answer_json:
        answer = GpuResetAnswer.model_validate_json(operation.answer_json)
        boot_id = operation.boot_id if answer.outcome is Outcome.DONE else None
        return step_result(operation, facts.now, answer.outcome, answer.reason, boot_id=boot_id)
    if operation.is_machine_gone:
        return step_result(operation, facts.now, Outcome.FAILED, "its machine was terminated")
    if operation.boot_id and facts.node is not None and facts.node.boot_id != operation.boot_id:
        return step_result(operation, facts.now, Outcome.FAILED, "the node has rebooted meanwhile")
    if operation.has_command_failed:
        return step_result(operation, facts.now, Outcome.FAILED, REFUSED)
    if not facts.is_final:
        return None
    if operation.state is OperationState.PLANNED:
        return step_result(operation, facts.now, Outcome.FAILED, "the GPU reset was not sent")
    seconds, state = operation.step.decision.deadline_seconds, operation.command_state or "UNKNOWN"
    why = f"the node did not answer within {seconds} s; the command is {state}"
    return step_result(operation, facts.now, Outcome.FAILED, why)


def _refresh(operation: Operation, ports: Ports) -> Operation:
    """The command's own output is one line of JSON, which the agent prints beside the event that did not arrive."""
    if operation.answer_json or not operation.reference:
        return operation
    status = ports.commands.look(node_of(operation.node_id, ports), operation.reference)
    answer = _read_output(status.output) if status.state == "SUCCEEDED" else None
    known = answer.model_dump_json() if answer is not None else ""
    return update(
        operation,
        ports,
        lambda operation: replace(operation, command_state=status.state, answer_json=operation.answer_json or known),
    )


def _read_output(output: str) -> GpuResetAnswer | None:
    try:
        fields = read_printed(output)
        return GpuResetAnswer(outcome=fields["outcome"], reason=fields["reason"])
    except (KeyError, ValueError):
        return None


def _settle(operation: Operation, result: StepResult, ports: Ports) -> None:
    if operation.state is OperationState.PLANNED and result.outcome is Outcome.FAILED:
        give_attempt_back(operation.step, ports)


def _stored(event: GpuResetFinished) -> str:
    return GpuResetAnswer(outcome=event.outcome, reason=event.reason).model_dump_json()


HANDLER = Handler(
    _start, _observe, read_node, _refresh, _settle, answers=Answers(GpuResetFinished, _stored), needs_isolation=True
)
