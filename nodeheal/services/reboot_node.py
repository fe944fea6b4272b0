"""Ask a node to reboot, and let its next boot resume the workflow."""

from datetime import timedelta

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome
from nodeheal.domain.node import moved
from nodeheal.ports import Ports, Wait
from nodeheal.services.reserve_attempt import why_not_act
from nodeheal.services.send_command import send_once
from nodeheal.services.steps import node_of, result_of, save_node, tell, token_of

BOOT = "boot"


def reboot_node(request: StepRequest, ports: Ports) -> None:
    """Send the reboot once. Only a new boot id resumes the workflow with DONE; acceptance proves nothing."""
    token = token_of(request)
    node = node_of(request.decision.node_id, ports)
    why_not = why_not_act(node, request, ports)
    if why_not:
        ports.workflows.resume(token, result_of(request, ports, Outcome.REFUSED, why_not))
        return
    deadline = ports.clock() + timedelta(seconds=request.decision.deadline_seconds)
    blank = result_of(request, ports, Outcome.UNKNOWN, "not seen to boot yet")
    wait = Wait(
        BOOT,
        node.node_id,
        token,
        request.incident_id,
        deadline,
        boot_id=node.boot_id,
        result_json=blank.model_dump_json(),
    )
    recovering = moved(node, NodeState.RECOVERING, f"rebooting: {request.decision.reason}")
    save_node(ports, node, state=recovering.state, state_reason=recovering.state_reason)
    command_id = send_once(wait, lambda: ports.commands.reboot(node, expires_at=deadline), request, ports)
    if command_id is not None:
        sent = f"reboot sent to {node.node_id}, for boot {node.boot_id[:8]} only (SSM command {command_id})"
        tell(request, ports, "reboot-sent", sent)
