"""Make a node boot anew: by a reboot, or by a stop and start of its machine. Its next boot resumes the workflow."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, NodeState, Outcome
from nodeheal.domain.errors import MachineRefused, NotFound
from nodeheal.domain.fleet.node import Node, moved
from nodeheal.ports import Ports
from nodeheal.services.boot_wait import REBOOTING, note_boot, noted_boot, wait_for_boot
from nodeheal.services.reserve_attempt import give_attempt_back, why_not_act
from nodeheal.services.send_command import AWAITED, send_reboot
from nodeheal.services.steps import enter_state, forget, node_of, result_of, tell, token_of
from nodeheal.services.stop_start import is_begun, stop_start


def reboot_node(request: StepRequest, ports: Ports) -> None:
    """Send the reboot once. Only a new boot id resumes the workflow with DONE; acceptance proves nothing."""
    token = token_of(request)
    node = node_of(request.decision.node_id, ports)
    why_not = why_not_act(node, request, ports)
    if why_not:
        if not noted_boot(request, ports, REBOOTING) and not is_begun(request, ports):
            give_attempt_back(request, ports)
        ports.workflows.resume(token, result_of(request, ports, Outcome.REFUSED, why_not))
        return
    is_stop_start = request.decision.action is Action.STOP_START
    what = "stopping and starting" if is_stop_start else "rebooting"
    recovering = moved(node, NodeState.RECOVERING, f"{what}: {request.decision.reason}", ports.clock())
    if is_stop_start:
        enter_state(ports, node, recovering.state, recovering.state_reason)
        stop_start(request, node, ports)
        return
    if request.decision.boot_id not in ("", node.boot_id) and not noted_boot(request, ports, REBOOTING):
        # What the fault was on is over, and not by our hand: no other boot is ended for it.
        give_attempt_back(request, ports, "it has rebooted by itself")
        gone = f"boot {request.decision.boot_id[:8]}, on which it failed, had ended before it was asked to reboot"
        ports.workflows.resume(token, result_of(request, ports, Outcome.DONE, gone, boot_id=node.boot_id))
        return
    if note_boot(request, node, ports, REBOOTING) != node.boot_id:
        # An earlier call of this turn has sent it, and the node is back: its event has resumed a token that is gone.
        back = result_of(request, ports, Outcome.DONE, "back with a new boot id", boot_id=node.boot_id)
        ports.workflows.resume(token, back)
        return
    enter_state(ports, node, recovering.state, recovering.state_reason)
    _send(request, node, ports)


def _send(request: StepRequest, node: Node, ports: Ports) -> None:
    wait = wait_for_boot(request, node, ports)
    try:
        command_id = send_reboot(wait, node, request, ports)
    except (MachineRefused, NotFound) as refusal:  # neither EC2 nor SSM has done anything
        forget(ports, wait)
        give_attempt_back(request, ports)
        ports.workflows.resume(token_of(request), result_of(request, ports, Outcome.FAILED, str(refusal)))
        return
    if command_id is None:
        tell(request, ports, AWAITED, f"the reboot of {node.node_id} may be under way; waiting for its next boot")
    else:
        sent = f"reboot sent to {node.node_id}, for boot {node.boot_id[:8]} only ({command_id})"
        tell(request, ports, "reboot-sent", sent)
