"""STOP_START: EC2 stops a machine and starts it again, on another host, so that a fault of the old one is left behind.

The step stops it; EC2's event that it has stopped starts it; its boot ends the operation. How far this is stands in the
record before anything is asked. A stop and a start may be asked for twice, as a reboot may not.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from nodeheal.contract.health_event import Frozen, UtcTime
from nodeheal.contract.results import CallAgain, Refused, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Refusal, VerbName
from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted
from nodeheal.domain.fleet.machine import NO_ROOM, STOPPED_BY_CALL, Machine, Power, why_not_stop
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.operations.handler import Handler, NextActDue, OperationFacts, VerbContext, read_node, step_result
from nodeheal.operations.record import has_time_left, plan_step, update
from nodeheal.ports import Ports
from nodeheal.services.recovery.reserve_attempt import give_attempt_back, reserve_for_node_or_why_not
from nodeheal.services.saving import node_of
from nodeheal.services.steps import add_timeline_entry, enter_state

# A node's clock and ours. A machine that stops takes longer than this, so a boot before the stop is told apart.
_CLOCKS_DIFFER = timedelta(seconds=15)
_RUNNING = ("pending", "running")
_GONE = "gone"


class StopStartPhase(StrEnum):
    """How far it is."""

    NOTHING_ASKED = "NOTHING_ASKED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"  # it is to be started, by the next call
    STARTING = "STARTING"


class _Record(Frozen):
    """`left_boot_id`, `left_at`: the boot before the start, and when the start was begun, as first written."""

    phase: StopStartPhase = StopStartPhase.NOTHING_ASKED
    has_stopped: bool = False  # EC2 has reported that it has stopped, since we asked for it
    is_stop_taken: bool = False
    is_start_taken: bool = False
    is_started_again: bool = False  # once in an operation: no endless loop
    left_boot_id: str = ""
    left_at: UtcTime | None = None
    first_deadline_at: UtcTime | None = None  # of the first call, where one broke: later calls do not extend it
    machine_state: str = ""  # as EC2 said when it was last queried
    state_code: str = ""
    state_reason: str = ""


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.STOP_START, node_owner(request.decision.node_id))


def _machine_stopped(operation: Operation, ports: Ports) -> Operation:
    """EC2 reports that the machine has stopped. Of one that is to start, EC2 is queried why."""
    if read_record(operation).phase is StopStartPhase.STOPPING:
        return update(operation, ports, lambda operation: _with(operation, read_record(operation), has_stopped=True))
    return _refresh(operation, ports)


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    """The next act: the stop, or the start."""
    ports, request, record = world.ports, operation.step, read_record(operation)
    node, now = node_of(operation.node_id, ports), ports.clock()
    if record.phase is StopStartPhase.NOTHING_ASKED:
        why_not = reserve_for_node_or_why_not(node, request, ports)
        if why_not:
            give_attempt_back(request, ports)
            return step_result(operation, now, Outcome.REFUSED, why_not)
        recovering = moved(node, NodeState.RECOVERING, f"stopping and starting: {request.decision.reason}", now)
        enter_state(ports, node, recovering.state, recovering.state_reason)
    machine = ports.machines.describe(node.instance_id)
    why_not = f"{node.instance_id} is gone" if machine is None else ""
    if machine is not None and record.phase is StopStartPhase.NOTHING_ASKED:
        why_not = why_not_stop(machine)
    if machine is None or why_not:
        return _refused(operation, now, why_not, ports)
    is_still_up = record.phase is StopStartPhase.STOPPING and not record.has_stopped and machine.state in _RUNNING
    if record.phase is StopStartPhase.NOTHING_ASKED or is_still_up:
        return _stop(operation, machine, ports)
    return _start_machine(operation, node, ports)


def _stop(operation: Operation, machine: Machine, ports: Ports) -> Operation | StepResult:
    # Before the call: its event may be quicker than its answer.
    asked = update(operation, ports, lambda operation: _moved_on(operation, StopStartPhase.STOPPING))
    try:
        ports.machines.power(machine.machine_id, Power.STOP)
    except NotAccepted:
        update(asked, ports, lambda latest: replace(operation, version=latest.version))
        raise
    except MachineRefused as refusal:
        back = update(asked, ports, lambda latest: replace(operation, version=latest.version))
        return _refused(back, ports.clock(), str(refusal), ports)
    what = f"{operation.node_id} is being stopped; it is started again when it has"
    add_timeline_entry(operation.step, ports, "stop-sent", what)
    return update(asked, ports, lambda operation: _with(operation, read_record(operation), is_stop_taken=True))


def _start_machine(operation: Operation, node: Node, ports: Ports) -> Operation | StepResult:
    now = ports.clock()

    def starting(operation: Operation) -> Operation:
        record = read_record(operation)
        left = {} if record.left_at is not None else {"left_boot_id": node.boot_id, "left_at": now}
        return _moved_on(operation, StopStartPhase.STARTING, machine_state="", **left)

    asked = update(operation, ports, starting)
    try:
        ports.machines.power(node.instance_id, Power.START)
    except NotAccepted:
        update(asked, ports, lambda operation: _moved_on(operation, StopStartPhase.STOPPED))
        raise
    except NoCapacity as short:
        why = f"{operation.node_id} is stopped, and there is no capacity to start it: {short}"
        missing = Refused(code=Refusal.NO_CAPACITY, missing=str(short))
        return step_result(operation, now, Outcome.FAILED, why, facts=missing)
    except MachineRefused as refusal:
        why = f"{operation.node_id} is stopped, and EC2 will not start it: {refusal}"
        return step_result(operation, now, Outcome.FAILED, why)
    add_timeline_entry(operation.step, ports, "start-sent", f"{operation.node_id} has stopped, and is being started")
    return update(asked, ports, lambda operation: _moved_on(operation, StopStartPhase.STARTING, is_start_taken=True))


def _refused(operation: Operation, now: datetime, why: str, ports: Ports) -> StepResult:
    """The machine is not one that may be stopped, or it is gone. Where nothing was asked, nothing is spent."""
    if read_record(operation).phase is not StopStartPhase.NOTHING_ASKED:
        return step_result(operation, now, Outcome.FAILED, why)
    give_attempt_back(operation.step, ports)
    return step_result(operation, now, Outcome.REFUSED, why)


def _refresh(operation: Operation, ports: Ports) -> Operation:
    node = ports.nodes.get(operation.node_id)
    machine = ports.machines.describe(node.instance_id) if node is not None else None
    state = machine.state if machine is not None else _GONE
    why = {"state_code": machine.state_code, "state_reason": machine.state_reason} if machine is not None else {}

    def noted(operation: Operation) -> Operation:
        record = read_record(operation)
        is_stopped = record.phase is StopStartPhase.STOPPING and state == "stopped"
        return _with(operation, record, machine_state=state, has_stopped=record.has_stopped or is_stopped, **why)

    return update(operation, ports, noted) if operation.version else noted(operation)


def _observe(operation: Operation, facts: OperationFacts) -> StepResult | NextActDue | None:
    record = read_record(operation)
    if facts.node is not None and _is_started(record, facts.node) and (facts.is_final or _may_run(record)):
        return step_result(operation, facts.now, Outcome.DONE, "back with a new boot id", boot_id=facts.node.boot_id)
    if operation.is_machine_gone:
        return step_result(operation, facts.now, Outcome.FAILED, "its machine was terminated")
    if facts.is_final:
        return _final(operation, record, facts)
    if record.machine_state == _GONE:
        return step_result(operation, facts.now, Outcome.FAILED, f"{operation.node_id} is gone")
    match record.phase:
        case StopStartPhase.STOPPED:
            return NextActDue()
        case StopStartPhase.STOPPING:
            is_unasked = not record.is_stop_taken and record.machine_state in _RUNNING  # a call broke before it asked
            return NextActDue() if record.has_stopped or is_unasked else None
        case StopStartPhase.STARTING if record.machine_state == "stopped":
            if record.state_code and record.state_code != STOPPED_BY_CALL:
                return _not_started(operation, record, facts)
            # If somebody stopped it again, the deadline decides: EC2 may not have seen our start yet.
            return None if record.is_start_taken else NextActDue()
        case _:
            return None


def _final(operation: Operation, record: _Record, facts: OperationFacts) -> StepResult:
    if record.phase is StopStartPhase.NOTHING_ASKED:
        return step_result(operation, facts.now, Outcome.FAILED, "nothing was asked of EC2")
    if record.machine_state == _GONE:
        return step_result(operation, facts.now, Outcome.FAILED, f"{operation.node_id} is gone")
    if record.machine_state == "stopped":
        is_first = not record.is_started_again or record.phase is StopStartPhase.STOPPED
        if is_first and not _is_stopped_again(record):
            why = f"{operation.node_id} is stopped; starting it"
            return step_result(operation, facts.now, Outcome.UNKNOWN, why, facts=CallAgain())
        return _not_started(operation, record, facts)
    if has_time_left(operation, record.first_deadline_at, facts.now):
        # Only the call failed. The machine is about to stop, or to come back, so it is not replaced.
        why = "the stop and start may be under way; waiting for it"
        return step_result(operation, facts.now, Outcome.UNKNOWN, why, facts=CallAgain())
    asked = "no new boot id" if record.left_at is not None else "it has not stopped"
    why = f"{asked} within {operation.step.decision.deadline_seconds} s; EC2 says {record.machine_state}"
    return step_result(operation, facts.now, Outcome.TIMED_OUT, why)


def _not_started(operation: Operation, record: _Record, facts: OperationFacts) -> StepResult:
    what = "EC2 could not start it"
    if record.state_code == STOPPED_BY_CALL:
        is_taken = record.is_start_taken
        what = "somebody has stopped it since it was started" if is_taken else "it was not started again"
    why = f"{operation.node_id} is stopped: {what} ({record.state_reason or 'no reason given'})"
    no_room = record.state_code == NO_ROOM
    missing = Refused(code=Refusal.NO_CAPACITY, missing=record.state_reason) if no_room else None
    return step_result(operation, facts.now, Outcome.FAILED, why, facts=missing)


def _is_started(record: _Record, node: Node) -> bool:
    """Whether the node has booted since its machine was started. A boot of before may be reported after."""
    if record.left_at is None:
        return False
    return node.boot_id != record.left_boot_id and node.booted_at >= record.left_at - _CLOCKS_DIFFER


def _may_run(record: _Record) -> bool:
    """A boot that is reported while its machine is stopped proves nothing."""
    return record.phase is StopStartPhase.STARTING or (
        record.phase is StopStartPhase.STOPPED and record.machine_state in _RUNNING
    )


def _is_stopped_again(record: _Record) -> bool:
    """Whether somebody stopped it after EC2 accepted our start, and so wants it stopped."""
    return record.is_start_taken and record.state_code == STOPPED_BY_CALL


def _settle(operation: Operation, result: StepResult, ports: Ports) -> None:
    request = operation.step
    record = read_record(operation)
    if isinstance(result.facts, CallAgain) and record.machine_state != "stopped":
        first = record.first_deadline_at or operation.deadline_at
        update(operation, ports, lambda operation: _with(operation, read_record(operation), first_deadline_at=first))
        why = f"the stop and start of {operation.node_id} may be under way; waiting for it"
        add_timeline_entry(request, ports, "stop-start-awaited", why)
    elif isinstance(result.facts, CallAgain):
        update(operation, ports, lambda operation: _moved_on(operation, StopStartPhase.STOPPED, is_started_again=True))
        add_timeline_entry(request, ports, "start-again", f"{operation.node_id} is stopped; starting it")
    elif operation.state is OperationState.PLANNED and result.outcome is Outcome.FAILED:
        give_attempt_back(request, ports)


def read_record(operation: Operation) -> _Record:
    """The verb's own record."""
    return _Record.model_validate_json(operation.data_json) if operation.data_json else _Record()


def _moved_on(operation: Operation, phase: StopStartPhase, **known: object) -> Operation:
    state = operation.state if operation.is_over else OperationState.STARTED
    return replace(_with(operation, read_record(operation), phase=phase, **known), state=state)


def _with(operation: Operation, record: _Record, **known: object) -> Operation:
    return replace(operation, data_json=record.model_copy(update=known).model_dump_json())


HANDLER = Handler(
    _start,
    _observe,
    read_node,
    _refresh,
    _settle,
    machine_stopped=_machine_stopped,
    refreshes_when_repeated=True,
    needs_isolation=True,
)
