"""Ask a node to reboot, and let its next boot resume the workflow."""

from datetime import timedelta

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome
from nodeheal.domain.errors import MachineRefused
from nodeheal.domain.incident import TimelineEntry
from nodeheal.domain.node import Node, moved
from nodeheal.ports import Ports, Wait
from nodeheal.services.reserve_attempt import why_not_act
from nodeheal.services.send_command import send_reboot
from nodeheal.services.steps import entry_id, forget, node_of, result_of, save_node, tell, token_of

BOOT = "boot"
_REBOOTING = "rebooting"  # the line of the timeline that names the boot which this turn is to end


def reboot_node(request: StepRequest, ports: Ports) -> None:
    """Send the reboot once. Only a new boot id resumes the workflow with DONE; acceptance proves nothing."""
    token = token_of(request)
    node = node_of(request.decision.node_id, ports)
    why_not = why_not_act(node, request, ports)
    if why_not:
        ports.workflows.resume(token, result_of(request, ports, Outcome.REFUSED, why_not))
        return
    if _boot_to_end(request, node, ports) != node.boot_id:
        # An earlier call of this turn has sent it, and the node is back: its event has resumed a token that is gone.
        back = result_of(request, ports, Outcome.DONE, "back with a new boot id", boot_id=node.boot_id)
        ports.workflows.resume(token, back)
        return
    recovering = moved(node, NodeState.RECOVERING, f"rebooting: {request.decision.reason}")
    save_node(ports, node, state=recovering.state, state_reason=recovering.state_reason)
    wait = _wait(request, node, ports)
    try:
        command_id = send_reboot(wait, node, request, ports)
    except MachineRefused as refusal:
        forget(ports, wait)
        ports.workflows.resume(token, result_of(request, ports, Outcome.FAILED, str(refusal)))
        return
    if command_id is not None:
        sent = f"reboot sent to {node.node_id}, for boot {node.boot_id[:8]} only ({command_id})"
        tell(request, ports, "reboot-sent", sent)


def _wait(request: StepRequest, node: Node, ports: Ports) -> Wait:
    return Wait(
        BOOT,
        node.node_id,
        token_of(request),
        request.incident_id,
        ports.clock() + timedelta(seconds=request.decision.deadline_seconds),
        boot_id=node.boot_id,
        result_json=result_of(request, ports, Outcome.UNKNOWN, "not seen to boot yet").model_dump_json(),
    )


def _boot_to_end(request: StepRequest, node: Node, ports: Ports) -> str:
    """The boot that this turn is to end: the one that its first call found. Written once, whoever calls again."""
    name = entry_id(request, _REBOOTING)
    text = f"{node.node_id} is to leave boot {node.boot_id[:8]}"
    if ports.incidents.append(request.incident_id, TimelineEntry(ports.clock(), "progress", name, text, node.boot_id)):
        return node.boot_id
    timeline = ports.incidents.history(request.incident_id).timeline
    return next((entry.data for entry in timeline if entry.entry_id == name), node.boot_id)
