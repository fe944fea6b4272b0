"""REBOOT: a node boots again. Only a new boot id proves it; acceptance proves nothing."""

from dataclasses import replace

from nodeheal.contract.health_event import Frozen, UtcTime
from nodeheal.contract.results import CallAgain, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Provider, VerbName
from nodeheal.domain.errors import MachineRefused, NotFound
from nodeheal.domain.fleet.machine import Power
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.operations.diagnose import leave_with_reboot
from nodeheal.operations.handler import Handler, OperationFacts, VerbContext, read_node, step_result
from nodeheal.operations.record import has_time_left, plan_step, send, update
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.recovery.reserve_attempt import give_attempt_back, reserve_for_node_or_why_not
from nodeheal.services.saving import node_of
from nodeheal.services.steps import add_timeline_entry, enter_state

# The call, which gives no id that could be looked at, and who says afterwards how the machine is.
_CALLS = {Provider.ec2: "EC2 RebootInstances", Provider.hyperpod: "SageMaker BatchRebootClusterNodes"}
_SPEAKERS = {_CALLS[Provider.ec2]: "EC2", _CALLS[Provider.hyperpod]: "HyperPod"}


class _Record(Frozen):
    """What the last query said, and the deadline of the first call, where a call broke and was made again."""

    has_script_failed: bool = False
    machine_state: str = ""
    first_deadline_at: UtcTime | None = None


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.REBOOT, node_owner(request.decision.node_id))


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    ports, request = world.ports, operation.step
    node, now = node_of(operation.node_id, ports), ports.clock()
    why_not = reserve_for_node_or_why_not(node, request, ports)
    if why_not:
        give_attempt_back(request, ports)
        return step_result(operation, now, Outcome.REFUSED, why_not)
    if request.decision.boot_id not in ("", node.boot_id):
        # The boot with the fault is over, and nodeheal did not end it. No other boot is ended for that fault.
        give_attempt_back(request, ports, "it has rebooted by itself")
        gone = f"boot {request.decision.boot_id[:8]}, on which it failed, had ended before it was asked to reboot"
        return step_result(operation, now, Outcome.DONE, gone, boot_id=node.boot_id)
    recovering = moved(node, NodeState.RECOVERING, f"rebooting: {request.decision.reason}", now)
    enter_state(ports, node, recovering.state, recovering.state_reason)
    operation = replace(operation, boot_id=operation.boot_id or node.boot_id)
    try:
        leaves = leave_with_reboot(operation, ports) if node.provider is Provider.hybrid else {}
        operation = send(operation, lambda _: _send(node, operation, leaves, ports), ports)
    except (MachineRefused, NotFound) as refusal:  # nobody has done anything
        give_attempt_back(request, ports)
        return step_result(operation, now, Outcome.FAILED, str(refusal))
    by = operation.reference if operation.reference in _SPEAKERS else f"SSM command {operation.reference}"
    add_timeline_entry(
        request, ports, "reboot-sent", f"reboot sent to {node.node_id}, for boot {node.boot_id[:8]} only ({by})"
    )
    return operation


def _send(node: Node, operation: Operation, leaves: dict[str, str], ports: Ports) -> str:
    if node.provider is Provider.hybrid:
        return ports.commands.send(node, Command("reboot-node", leaves), operation.deadline_at)
    # EC2 and HyperPod know nothing of boots: asked twice, they reboot twice. The record keeps that from happening.
    ports.machines_of(node).power(node.instance_id, Power.REBOOT)
    return _CALLS[node.provider]


def _observe(operation: Operation, facts: OperationFacts) -> StepResult | None:
    record = _read_record(operation)
    if operation.boot_id and facts.node is not None and facts.node.boot_id != operation.boot_id:
        return step_result(operation, facts.now, Outcome.DONE, "back with a new boot id", boot_id=facts.node.boot_id)
    if operation.is_machine_gone:
        return step_result(operation, facts.now, Outcome.FAILED, "its machine was terminated")
    if record.has_script_failed and not facts.is_final:
        why = "the node refused the command or could not run it"
        return step_result(operation, facts.now, Outcome.FAILED, why)
    return _final(operation, record, facts) if facts.is_final else None


def _final(operation: Operation, record: _Record, facts: OperationFacts) -> StepResult:
    seconds = operation.step.decision.deadline_seconds
    if operation.state is OperationState.PLANNED:
        return step_result(operation, facts.now, Outcome.FAILED, "the reboot was not sent")
    if has_time_left(operation, record.first_deadline_at, facts.now) and not record.has_script_failed:
        # Only the call failed. The node is about to come back, so it is not stopped or replaced.
        why = "the reboot may be under way; waiting for it"
        return step_result(operation, facts.now, Outcome.UNKNOWN, why, facts=CallAgain())
    if not operation.reference:
        why = "the reboot may have been sent; the node has not rebooted"
        return step_result(operation, facts.now, Outcome.UNKNOWN, why)
    if operation.reference in _SPEAKERS:
        speaker = _SPEAKERS[operation.reference]
        why = f"no new boot id within {seconds} s; {speaker} says {record.machine_state or 'that it is gone'}"
        return step_result(operation, facts.now, Outcome.TIMED_OUT, why)
    state = operation.command_state or "UNKNOWN"
    why = f"no new boot id within {seconds} s; the reboot command is {state}"
    return step_result(operation, facts.now, Outcome.FAILED if state == "FAILED" else Outcome.TIMED_OUT, why)


def _refresh(operation: Operation, ports: Ports) -> Operation:
    """Queries SSM, which reports a script that its own reboot cut off as failed. Only the script's failure counts."""
    node, record = node_of(operation.node_id, ports), _read_record(operation)
    if operation.reference in _SPEAKERS:
        machine = ports.machines_of(node).describe(node.instance_id)
        record = record.model_copy(update={"machine_state": machine.state if machine is not None else ""})
        return update(operation, ports, lambda operation: replace(operation, data_json=record.model_dump_json()))
    if not operation.reference:
        return operation
    status = ports.commands.look(node, operation.reference)
    record = record.model_copy(update={"has_script_failed": status.has_script_failed})
    known = {"command_state": status.state, "data_json": record.model_dump_json()}
    return update(operation, ports, lambda operation: replace(operation, **known))  # type: ignore[arg-type]


def _settle(operation: Operation, result: StepResult, ports: Ports) -> None:
    request = operation.step
    if isinstance(result.facts, CallAgain):
        record = _read_record(operation)
        first = record.first_deadline_at or operation.deadline_at
        record = record.model_copy(update={"first_deadline_at": first})
        update(operation, ports, lambda operation: replace(operation, data_json=record.model_dump_json()))
        why = f"the reboot of {operation.node_id} may be under way; waiting for its next boot"
        add_timeline_entry(request, ports, "reboot-awaited", why)
    elif operation.state is OperationState.PLANNED and result.outcome is Outcome.FAILED:
        give_attempt_back(request, ports)


def _read_record(operation: Operation) -> _Record:
    return _Record.model_validate_json(operation.data_json) if operation.data_json else _Record()


HANDLER = Handler(_start, _observe, read_node, _refresh, _settle, needs_isolation=True)
