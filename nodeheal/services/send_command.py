"""Send a command to a node once, with the wait for its answer stored before."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome, Provider
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.machine import Power
from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports, Wait
from nodeheal.services.request_ids import named_at_random, request_id_of_wait
from nodeheal.services.steps import result_of, told_line

COMMAND = "command"
_SENDING = "sending"  # until its id is known; whoever dies in between may have sent it
_BY_EC2 = "EC2 RebootInstances"
AWAITED = "reboot-awaited"  # the line of the timeline that says so, once a turn
# A workflow's deadline begins before the function that stores the wait, which may take so long.
_BEGINS_LATER = timedelta(seconds=60)


def send_once(wait: Wait, send: Callable[[str], str], request: StepRequest, ports: Ports) -> str | None:
    """Store the wait, send under a random request id, and keep the command's id with it. None: an earlier call has
    sent it already.

    That it is about to be sent is stored before, too. A workflow that repeats a call, because something after the
    sending was throttled, comes with a new token: the wait then gets that one, and nothing is sent again.
    """
    known = ports.waits.get(wait.kind, wait.key)
    same = known is not None and (known.incident_id, known.boot_id) == (wait.incident_id, wait.boot_id)
    if known is not None and same and known.command_id:
        _take_over(replace(known, token=wait.token), request, ports)
        return None
    wait = named_at_random(wait, known)
    ports.waits.save(replace(wait, command_id=_SENDING))
    try:
        command_id = send(request_id_of_wait(wait))
    except NotAccepted:
        ports.waits.save(wait)  # provably not sent: the repeated call sends it
        raise
    _keep(wait, command_id, request, ports)
    return command_id


def sent_as(wait: Wait) -> str:
    """The id of the command behind the wait. Empty: it was not sent, or nobody can tell."""
    return "" if wait.command_id == _SENDING else wait.command_id


def send_reboot(wait: Wait, node: Node, request: StepRequest, ports: Ports) -> str | None:
    """Ask for the reboot, by the way that the node's provider has. None: an earlier call has asked already."""
    if node.provider is Provider.hybrid:
        command_id = send_once(wait, lambda _: ports.commands.reboot(node, expires_at=wait.deadline_at), request, ports)
        return f"SSM command {command_id}" if command_id else None
    return _reboot_machine(wait, node, ports)


def is_sent_to_machine(wait: Wait) -> bool:
    """Whether the reboot was asked of EC2, which gives no id to look at."""
    return wait.command_id == _BY_EC2


def is_under_way(request: StepRequest, node: Node, wait: Wait, ports: Ports) -> bool:
    """Whether only the call broke, well before its deadline: a reboot that may have been sent is waited for, once more.

    A node that is about to come back would else be stopped or replaced for a function that has died.
    """
    if not wait.command_id or ports.clock() >= wait.deadline_at - _BEGINS_LATER or told_line(request, ports, AWAITED):
        return False
    sent = "" if is_sent_to_machine(wait) else sent_as(wait)
    return not sent or not ports.commands.look(node, sent).has_script_failed


def _reboot_machine(wait: Wait, node: Node, ports: Ports) -> str | None:
    """EC2 knows nothing of boots: asked twice, it reboots twice. So the intent is stored as if it had been done."""
    known = ports.waits.get(wait.kind, wait.key)
    asked = replace(wait, command_id=_BY_EC2)
    ports.waits.save(asked)
    if known is not None and is_sent_to_machine(known) and known.boot_id == wait.boot_id:
        return None
    try:
        ports.machines.power(node.instance_id, Power.REBOOT)
    except NotAccepted:
        ports.waits.save(wait)  # provably not asked: the repeated call asks again
        raise
    return _BY_EC2


def name_command(wait: Wait, kind: str, command_id: str, ports: Ports, *, result_json: str | None = None) -> None:
    """Have the command's id lead to the stored wait, by a twin of this kind: the command's own failure is told by it.

    An answer may be quicker than this. Then nothing is waited for any more, and nothing may be left of it.
    """
    if not ports.waits.save(replace(wait, command_id=command_id, twin=(kind, command_id)), renews=True):
        return
    twin = replace(wait, kind=kind, key=command_id, command_id="", twin=(wait.kind, wait.key), outstanding=frozenset())
    ports.waits.save(twin if result_json is None else replace(twin, result_json=result_json))
    if ports.waits.get(wait.kind, wait.key) is None:
        ports.waits.drop(twin)


def _take_over(wait: Wait, request: StepRequest, ports: Ports) -> None:
    ports.waits.save(wait)
    if sent_as(wait):
        _keep(wait, wait.command_id, request, ports)


def _keep(wait: Wait, command_id: str, request: StepRequest, ports: Ports) -> None:
    """The wait with its command, and a twin that the command's own failure resumes."""
    failed = result_of(request, ports, Outcome.FAILED, "the node refused the command or could not run it")
    name_command(wait, COMMAND, command_id, ports, result_json=failed.model_dump_json())
