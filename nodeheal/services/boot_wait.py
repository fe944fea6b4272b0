"""The wait for a node's next boot: stored before the node is made to go down, resumed by the boot itself."""

from datetime import timedelta

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import TimelineEntry
from nodeheal.ports import Ports, Wait
from nodeheal.services.steps import entry_id, forget, node_of, result_of, resume, token_of, told_line

BOOT = "boot"
REBOOTING = "rebooting"  # the line of the timeline that names the boot which a reboot is to end
# How far a stop and start has got: `command_id` of its wait.
STOPPING, STOPPED, STARTING = "stopping", "stopped", "starting"
LEFT = "starting"  # the line of the timeline that names the boot before the start
# A node's clock and ours. A machine that stops takes longer than this, so a boot before the stop is told apart.
_CLOCKS_DIFFER = timedelta(seconds=15)


def wait_for_boot(request: StepRequest, node: Node, ports: Ports, *, keeps_request: bool = False) -> Wait:
    """The wait of this turn, not stored yet. `keeps_request`: whoever hears of the machine must know more than this."""
    return Wait(
        BOOT,
        node.node_id,
        token_of(request),
        request.incident_id,
        ports.clock() + timedelta(seconds=request.decision.deadline_seconds),
        boot_id=node.boot_id,
        result_json=result_of(request, ports, Outcome.UNKNOWN, "not seen to boot yet").model_dump_json(),
        request_json=request.model_dump_json(exclude={"task_token"}) if keeps_request else "",
    )


def prove_boot(node: Node, ports: Ports) -> None:
    """If a reboot of an earlier boot is waited for, this one proves it."""
    wait = ports.waits.get(BOOT, node.node_id)
    if wait is not None and proves_boot(wait, node, ports):
        blank = StepResult.model_validate_json(wait.result_json)
        proof = {"outcome": Outcome.DONE, "reason": "back with a new boot id", "boot_id": node.boot_id}
        resume(ports, wait, blank.model_copy(update={**proof, "finished_at": ports.clock()}))


def take_reboot_failure(sent: Wait, ports: Ports) -> None:
    """The command of a reboot has failed. `sent`: the alias of the wait under the command's id.

    The node may reboot all the same: SSM reports a script that its own reboot has cut off, and one that was killed
    after it had armed the reboot, as failed. Only the boot id decides that. So the wait ends now where another boot is
    recorded, or where the node's script has ended with a failure of its own; else it lasts until its deadline.
    """
    node = node_of(sent.twin[1] if sent.twin else "", ports)
    if node.boot_id != sent.boot_id:
        prove_boot(node, ports)
        forget(ports, sent)
    elif ports.commands.look(node, sent.key).has_script_failed:
        failed = StepResult.model_validate_json(sent.result_json)
        resume(ports, sent, failed.model_copy(update={"finished_at": ports.clock()}))


def proves_boot(wait: Wait, node: Node, ports: Ports) -> bool:
    """Whether the node's boot is what is waited for. A node can answer before it has gone down: only another boot
    proves it.

    One that answers late, while its machine is being stopped or after, proves nothing either: it is about to go.
    """
    if wait.boot_id == node.boot_id or wait.command_id in (STOPPING, STOPPED):
        return False
    return not wait.request_json or is_started(StepRequest.model_validate_json(wait.request_json), node, ports)


def is_started(request: StepRequest, node: Node, ports: Ports) -> bool:
    """Whether the node has booted since this turn had its machine started. A boot of before may be told after."""
    left = told_line(request, ports, LEFT)
    return left is not None and node.boot_id != left.data and node.booted_at >= left.at - _CLOCKS_DIFFER


def note_boot(request: StepRequest, node: Node, ports: Ports, what: str) -> str:
    """Write down which boot the node is to leave in this turn; whoever calls again reads what the first one wrote."""
    text = f"{node.node_id} is to leave boot {node.boot_id[:8]}"
    line = TimelineEntry(ports.clock(), "progress", entry_id(request, what), text, node.boot_id)
    if ports.incidents.append(request.incident_id, line):
        return node.boot_id
    return noted_boot(request, ports, what) or node.boot_id


def noted_boot(request: StepRequest, ports: Ports, what: str) -> str:
    """The boot that was written down; empty: none was, so nothing has been asked of the node in this turn."""
    line = told_line(request, ports, what)
    return line.data if line is not None else ""
