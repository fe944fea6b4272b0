"""A new machine comes up, or does not: give its node to the replacement that waits for it.

EC2's and Auto Scaling's events are best effort, and come twice or in any order. So none of them decides alone: a new
node is given away when its own agent has told of its boot, and whichever event comes last finds the others' traces.
"""

from dataclasses import replace

from nodeheal.contract.names import group_line
from nodeheal.contract.results import CallAgain, Refused, Replaced, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome, Provider, Refusal
from nodeheal.domain.fleet.machine import Launch, Machine
from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.recovery.late_machine import expect_late, forget_late, owed_by, tell_of_late
from nodeheal.services.recovery.machine_record import replacing_since
from nodeheal.services.recovery.replacement_slots import REPLACEMENT, free_slot
from nodeheal.services.recovery.reserve_attempt import refund_attempt
from nodeheal.services.recovery.stand_in import claim_new, put_in_place
from nodeheal.services.steps import node_of, result_of, resume

NEW_MACHINE = "new_machine"  # a wait under the id of a machine that was launched for a replacement
# How far a replacement has got: `command_id` of its wait. Else it is empty, or the id of the machine launched for it.
ASKED = "asked"
TERMINATING = "terminating"
TERMINATED = "terminated"
# A group may try for ever; one failure is told, and what comes later is found by the next attempt.
_NO_NODE = ("", ASKED, TERMINATING, TERMINATED)


def welcome(node: Node, ports: Ports) -> None:
    """A node has come up: if a replacement waits for it, or for any new node of its group, it is that one's."""
    if node.provider is not Provider.ec2:
        return
    direct = ports.waits.get(NEW_MACHINE, node.node_id)
    if direct is not None and direct.twin is not None:
        wait = ports.waits.get(*direct.twin)
        if wait is not None and wait.token == direct.token:
            settle(wait, node, ports)
        return
    if node.past_boots:
        return  # it has been here before
    # One that is spoken for goes through the line, too: who has claimed it may have died before he was out of it.
    machine = ports.machines.describe(node.instance_id)
    for wait in ports.waits.in_line(group_line(machine.group)) if machine is not None and machine.group else ():
        if _is_made_for(wait, machine, ports) and settle(wait, node, ports):
            return
    if machine is not None and machine.group and node.is_available(ports.clock()):
        _welcome_late(node, machine, ports)


def _welcome_late(node: Node, machine: Machine, ports: Ports) -> None:
    """Nobody waits for it; but a human may have an incident in which it is missed."""
    for owed in owed_by(machine.group, ports):
        since = replacing_since(_request(owed), ports)
        is_later = since is not None and machine.launched_at is not None and machine.launched_at >= since
        if is_later and tell_of_late(owed, node, machine.group, ports):
            return


def on_group_launch(launch: Launch, ports: Ports) -> None:
    """A group has launched a machine, or could not."""
    if launch.failed:
        for wait in ports.waits.in_line(group_line(launch.group)):
            _tell_of_failure(wait, launch, ports)
        return
    node = ports.nodes.get(launch.machine_id)
    if node is not None:  # else its own boot is still to come, and finds the wait by itself
        welcome(node, ports)


def on_machine_gone(machine_id: str, ports: Ports) -> None:
    """A machine is terminated. If its replacement waits for just that, the workflow launches the new one now."""
    wait = ports.waits.get(REPLACEMENT, machine_id)
    if wait is None or wait.command_id != TERMINATING:
        return
    ports.waits.save(replace(wait, command_id=TERMINATED))
    again = result_of(_request(wait), ports, Outcome.UNKNOWN, "terminated; launching its successor", facts=CallAgain())
    ports.workflows.resume(wait.token, again)


def find_new_node(wait: Wait, ports: Ports) -> bool:
    """Look for the new node in what is known already, and settle with it. False: it has not come up."""
    if wait.command_id not in _NO_NODE:
        node = ports.nodes.get(wait.command_id)
        return node is not None and settle(wait, node, ports)
    if not group_of(wait):
        return False
    pool = node_of(wait.key, ports).pool
    for node in ports.nodes.in_pool(pool):
        machine = ports.machines.describe(node.instance_id) if _may_be_new(node, wait, ports) else None
        if _is_made_for(wait, machine, ports) and settle(wait, node, ports):
            return True
    return False


def settle(wait: Wait, new: Node, ports: Ports) -> bool:
    """Give the new node to this replacement and resume its workflow. False: it is, or has, another one's, or none is
    wanted any more."""
    fresh = node_of(new.node_id, ports)
    request = _request(wait)
    if node_of(wait.key, ports).open_incident != wait.incident_id:
        return False  # a human has given the broken node back, or up, in the meantime
    if wait.command_id != fresh.node_id and not _may_be_new(fresh, wait, ports):
        return False
    if not claim_new(request, fresh, ports):
        return False
    resume(ports, wait, settled(request, fresh, ports))
    return True


def settled(request: StepRequest, new: Node, ports: Ports) -> StepResult:
    """The replacement is over: put the broken node away, and let the next replacement of the pool begin."""
    broken = node_of(request.decision.node_id, ports)
    done = put_in_place(request, broken, new, ports, what="new machine")
    free_slot(broken, ports)
    forget_late(broken.node_id, ports)
    return done.model_copy(update={"facts": Replaced(is_new_machine=True)})


def _tell_of_failure(wait: Wait, launch: Launch, ports: Ports) -> None:
    request = _request(wait)
    since = replacing_since(request, ports)
    if since is None or launch.at < since:
        return  # it failed for somebody else, before
    free_slot(node_of(wait.key, ports), ports)
    refund_attempt(request, ports)  # the next one may find what the group makes in the meantime
    expect_late(wait, launch.group, ports)  # and after the last one, whoever has the incident is told of it
    resume(ports, wait, without_capacity(request, launch, ports))


def without_capacity(request: StepRequest, launch: Launch, ports: Ports) -> StepResult:
    """The group has no machine to give."""
    why = f"Auto Scaling group {launch.group} could not launch a machine: {launch.failed}"
    return result_of(
        request, ports, Outcome.REFUSED, why, facts=Refused(code=Refusal.NO_CAPACITY, missing=launch.failed)
    )


def _may_be_new(node: Node, wait: Wait, ports: Ports) -> bool:
    """Whether the node has come up for the first time, and nobody has it."""
    is_ours = node.open_incident == wait.incident_id
    return not node.past_boots and node.node_id != wait.key and (is_ours or node.is_available(ports.clock()))


def _is_made_for(wait: Wait, machine: Machine | None, ports: Ports) -> bool:
    """Whether the group made this machine since it was to replace the broken one: an idle sibling is no successor."""
    since = replacing_since(_request(wait), ports)
    if machine is None or machine.group != group_of(wait) or since is None:
        return False
    return machine.launched_at is not None and machine.launched_at >= since


def group_of(wait: Wait) -> str:
    """The Auto Scaling group whose next machine is waited for; empty: none."""
    return wait.line[0].removeprefix(group_line("")) if wait.line else ""


def _request(wait: Wait) -> StepRequest:
    return StepRequest.model_validate_json(wait.request_json)
