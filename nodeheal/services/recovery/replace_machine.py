"""Have EC2 put a new machine in a broken one's place.

In an Auto Scaling group the group makes it: the broken one is given up, and the group's next node is ours. Without a
group the new one is launched first, from the broken one's launch template, and the broken one is held until the new
one is proven (`retire_broken`).

Everything rests on the wait of kind REPLACEMENT, which is stored before anything is asked of EC2. Its `command_id`
says how far it has got, so that a call that is repeated never gives up or launches twice.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.names import group_line
from nodeheal.contract.results import Refused
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Refusal
from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted
from nodeheal.domain.fleet.machine import GiveBack, Machine, alternatives_of
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy_models import InGroup, Replacement
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.recovery.machine_record import record_machine, recorded_machine
from nodeheal.services.recovery.new_machine import (
    ASKED,
    NEW_MACHINE,
    TERMINATED,
    TERMINATING,
    find_new_node,
    group_of,
    settled,
)
from nodeheal.services.recovery.replacement_slots import REPLACEMENT, claim_slot, free_slot
from nodeheal.services.recovery.reserve_attempt import give_attempt_back
from nodeheal.services.recovery.stand_in import stand_in_of
from nodeheal.services.steps import (
    add_timeline_entry,
    enter_state,
    find_timeline_entry,
    forget,
    node_of,
    result_of,
    token_of,
)

_GIVEN_UP = "given-up"  # the line of the timeline that says that EC2 was asked to take the broken one away


def replace_machine(request: StepRequest, node: Node, ports: Ports, knobs: Replacement) -> None:
    """Ask once for a new machine. The node that comes up on it resumes the workflow."""
    if _carries_on(request, node, ports):
        return
    alive = None if _is_terminated(request, ports) else ports.machines.describe(node.instance_id)
    machine = alive or recorded_machine(request, ports)
    if machine is None:
        give_up(
            request,
            ports,
            f"{node.instance_id} is gone: no such instance is there to be replaced",
            Refused(code=Refusal.INSTANCE_GONE),
        )
        return
    if not machine.group and not machine.launch_template:
        why = "is in no Auto Scaling group and comes from no launch template: there is nothing to make another from"
        give_up(request, ports, f"{node.instance_id} {why}")
        return
    record_machine(request, machine, ports)
    wait = _store_wait(request, node, machine, ports)
    if not claim_slot(node, knobs.max_nodes, ports):
        forget(ports, wait)
        why = f"{knobs.max_nodes} of {knobs.max_nodes} replacements of pool {node.pool} are under way"
        give_up(request, ports, why, Refused(code=Refusal.REPLACEMENTS_FULL))
        return
    if node.state is NodeState.ISOLATED:
        enter_state(ports, node, NodeState.RECOVERING, f"replacing: {request.decision.reason}")
    if machine.group:
        _leave_to_group(request, wait, alive, ports, knobs)
    elif knobs.terminate_first and alive is not None:
        _terminate_first(request, wait, alive, ports)
    else:
        _launch(request, wait, machine, ports, knobs)


def give_up(request: StepRequest, ports: Ports, why: str, facts: Refused | None = None) -> None:
    """Resume with a refusal. Nothing was replaced, so nothing is spent: the attempt is there again later."""
    is_given_up = find_timeline_entry(request, ports, _GIVEN_UP) is not None
    give_attempt_back(request, ports, "no machine was to be had in its place" if is_given_up else "")
    ports.workflows.resume(token_of(request), result_of(request, ports, Outcome.REFUSED, why, facts=facts))


def is_under_way(request: StepRequest, ports: Ports) -> bool:
    """Whether this turn has begun to replace the machine."""
    return stand_in_of(request, ports) is not None or wait_of(request, ports) is not None


def wait_of(request: StepRequest, ports: Ports) -> Wait | None:
    """This turn's own wait."""
    wait = ports.waits.get(REPLACEMENT, request.decision.node_id)
    if wait is None or wait.incident_id != request.incident_id:
        return None
    return wait if StepRequest.model_validate_json(wait.request_json).operation_turn == request.operation_turn else None


def _carries_on(request: StepRequest, node: Node, ports: Ports) -> bool:
    """Whether an earlier call of this turn has asked EC2 already, or is settled even. This call's token counts now."""
    new = stand_in_of(request, ports)
    if new is not None:
        ports.workflows.resume(token_of(request), settled(request, node_of(new, ports), ports))
        return True
    known = wait_of(request, ports)
    if known is None or known.command_id in ("", TERMINATED):
        return False
    wait = replace(known, token=token_of(request))
    _save_with_twin(wait, ports)
    find_new_node(wait, ports)
    return True


def _store_wait(request: StepRequest, node: Node, machine: Machine, ports: Ports) -> Wait:
    deadline = ports.clock() + timedelta(seconds=request.decision.deadline_seconds)
    place = f"{deadline:%Y-%m-%dT%H:%M:%S}#{node.node_id}"  # the most urgent first
    wait = Wait(
        REPLACEMENT,
        node.node_id,
        token_of(request),
        request.incident_id,
        deadline,
        boot_id=node.boot_id,
        line=(group_line(machine.group), place) if machine.group else None,
        request_json=request.model_dump_json(exclude={"task_token"}),
    )
    ports.waits.save(wait)
    return wait


def _save_with_twin(wait: Wait, ports: Ports) -> None:
    ports.waits.save(wait)
    if wait.twin is not None:
        ports.waits.save(
            replace(wait, kind=wait.twin[0], key=wait.twin[1], line=None, twin=(wait.kind, wait.key), command_id="")
        )


def _leave_to_group(request: StepRequest, wait: Wait, alive: Machine | None, ports: Ports, knobs: Replacement) -> None:
    asked = replace(wait, command_id=ASKED)
    ports.waits.save(asked)  # before the call: after a crash between, nobody asks again
    if alive is not None:
        how = GiveBack.MARK_UNHEALTHY if knobs.in_group is InGroup.mark_unhealthy else GiveBack.TERMINATE
        if not _given_back(request, wait, alive, how, ports):
            return
        done = "terminated in" if how is GiveBack.TERMINATE else "marked unhealthy in"
        add_timeline_entry(request, ports, _GIVEN_UP, f"{wait.key} {done} group {group_of(wait)}, which makes another")
    find_new_node(asked, ports)  # a group that had no capacity for an earlier attempt may have had it since


def _terminate_first(request: StepRequest, wait: Wait, alive: Machine, ports: Ports) -> None:
    ports.waits.save(replace(wait, command_id=TERMINATING))
    if _given_back(request, wait, alive, GiveBack.TERMINATE, ports):
        add_timeline_entry(request, ports, _GIVEN_UP, f"{wait.key} terminated, to make room for its successor")


def _given_back(request: StepRequest, wait: Wait, machine: Machine, how: GiveBack, ports: Ports) -> bool:
    """Give the machine up. False: EC2 refused, and the workflow has been told."""
    try:
        ports.machines.give_back(machine, how)
    except NotAccepted:
        ports.waits.save(wait)  # provably nothing was asked: the repeated call asks again
        raise
    except MachineRefused as refusal:
        _abandon(request, wait, str(refusal), None, ports)
        return False
    return True


def _launch(request: StepRequest, wait: Wait, machine: Machine, ports: Ports, knobs: Replacement) -> None:
    """Launch the successor. Repeating is safe: the token names this turn, and EC2 launches once for it."""
    places = alternatives_of(machine, knobs.subnets, knobs.instance_types)
    try:
        new = ports.machines.launch(machine, f"{request.incident_id[-50:]}-{request.operation_turn}", places)
    except NoCapacity as short:
        _abandon(request, wait, *_missing(machine, short, knobs), ports)
        return
    except MachineRefused as refusal:
        _abandon(request, wait, str(refusal), None, ports)
        return
    launched = replace(wait, command_id=new, twin=(NEW_MACHINE, new))
    _save_with_twin(launched, ports)
    add_timeline_entry(
        request, ports, "launched", f"{new} launched from {machine.launch_template}, to take {wait.key}'s place"
    )
    find_new_node(launched, ports)


def _missing(machine: Machine, short: NoCapacity, knobs: Replacement) -> tuple[str, Refused]:
    """What there is none of, in words, and what the workflow may make of it."""
    if short.is_reservation and not knobs.terminate_first:
        why = f"reservation {machine.reservation} is full with the broken machine in it: make room, or let the pool's "
        return f"{why}policy say replacement.terminate_first", Refused(
            code=Refusal.RESERVATION_FULL, missing=machine.reservation
        )
    return f"no machine is to be had: {short}", Refused(code=Refusal.NO_CAPACITY, missing=str(short))


def _is_terminated(request: StepRequest, ports: Ports) -> bool:
    """Whether this turn has had the machine terminated, whatever EC2 still says of it."""
    known = wait_of(request, ports)
    return known is not None and known.command_id == TERMINATED


def _abandon(request: StepRequest, wait: Wait, why: str, facts: Refused | None, ports: Ports) -> None:
    forget(ports, wait)
    free_slot(node_of(wait.key, ports), ports)
    give_up(request, ports, why, facts)
