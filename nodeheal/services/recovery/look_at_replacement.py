"""At the deadline of a replacement: what can be seen of the new machine."""

from nodeheal.contract.results import Replaced, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.errors import MachineRefused
from nodeheal.domain.fleet.machine import Launch
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.recovery.late_machine import expect_late
from nodeheal.services.recovery.machine_record import replacing_since
from nodeheal.services.recovery.new_machine import (
    ASKED,
    TERMINATED,
    TERMINATING,
    find_new_node,
    group_of,
    settled,
    without_capacity,
)
from nodeheal.services.recovery.replace_machine import wait_of
from nodeheal.services.recovery.replacement_slots import free_slot
from nodeheal.services.recovery.reserve_attempt import refund_attempt
from nodeheal.services.recovery.stand_in import claimed_spare, put_in_place, stand_in_of
from nodeheal.services.steps import forget, node_of, result_of


def look_at_replacement(request: StepRequest, ports: Ports) -> StepResult:
    """DONE where a node stands in for the broken one after all; else what is missing."""
    node = node_of(request.decision.node_id, ports)
    wait = wait_of(request, ports)
    if wait is not None:
        find_new_node(wait, ports)  # its event may have been lost
    new = stand_in_of(request, ports)
    if new is not None:
        return settled(request, node_of(new, ports), ports)
    if wait is None:
        spare = claimed_spare(node, request.incident_id, ports)
        if spare is not None:
            return put_in_place(request, node, spare, ports)
        return result_of(request, ports, Outcome.FAILED, "no spare was claimed, and no machine was asked for")
    seen = _seen(request, wait, ports)
    if wait.command_id == ASKED:
        expect_late(wait, group_of(wait), ports)
    free_slot(node, ports)
    forget(ports, wait)
    return seen


def _seen(request: StepRequest, wait: Wait, ports: Ports) -> StepResult:
    match wait.command_id:
        case "":
            return result_of(request, ports, Outcome.FAILED, "nothing was asked of EC2")
        case stage if stage in (TERMINATING, TERMINATED):
            why = f"{wait.key} was to be terminated first; its successor was not launched in time"
            return result_of(request, ports, Outcome.TIMED_OUT, why)
        case stage if stage == ASKED:
            return _seen_of_group(request, wait, ports)
        case machine_id:
            return _seen_of_machine(request, machine_id, ports)


def _seen_of_machine(request: StepRequest, machine_id: str, ports: Ports) -> StepResult:
    machine = ports.machines.describe(machine_id)
    if machine is None:
        return result_of(request, ports, Outcome.FAILED, f"{machine_id} was launched, and is gone again")
    return _not_heard_of(request, f"{machine_id} was launched and is {machine.state}", machine_id, ports)


def _seen_of_group(request: StepRequest, wait: Wait, ports: Ports) -> StepResult:
    try:
        launches = ports.machines.launches(group_of(wait), replacing_since(request, ports) or wait.deadline_at)
    except MachineRefused as refusal:
        return result_of(request, ports, Outcome.FAILED, f"group {group_of(wait)} makes no machine: {refusal}")
    last = launches[-1] if launches else Launch(group_of(wait), wait.deadline_at)
    if last.failed:
        refund_attempt(request, ports)
        return without_capacity(request, last, ports)
    if not last.machine_id:
        return _not_heard_of(request, f"group {group_of(wait)} has launched nothing", "", ports)
    return _not_heard_of(request, f"group {group_of(wait)} has launched {last.machine_id}", last.machine_id, ports)


def _not_heard_of(request: StepRequest, what: str, machine_id: str, ports: Ports) -> StepResult:
    why = f"{what}; no new node has come up within {request.decision.deadline_seconds} s"
    launched = Replaced(launched=machine_id) if machine_id else None
    return result_of(request, ports, Outcome.TIMED_OUT, why, facts=launched)
