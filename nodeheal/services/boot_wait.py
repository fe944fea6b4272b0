"""The wait for a node's next boot: stored before the node is made to go down, resumed by the boot itself."""

from datetime import timedelta

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.incident import TimelineEntry
from nodeheal.domain.node import Node
from nodeheal.ports import Ports, Wait
from nodeheal.services.steps import entry_id, result_of, token_of

BOOT = "boot"
REBOOTING = "rebooting"  # the line of the timeline that names the boot which a reboot is to end
# How far a stop and start has got: `command_id` of its wait.
STOPPING, STOPPED, STARTING = "stopping", "stopped", "starting"


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


def proves_boot(wait: Wait, boot_id: str) -> bool:
    """Whether this boot is what is waited for. A node can answer before it has gone down: only another boot proves it.

    One that answers late, while its machine is being stopped, proves nothing either: it is about to go.
    """
    return wait.boot_id != boot_id and wait.command_id not in (STOPPING, STOPPED)


def note_boot(request: StepRequest, node: Node, ports: Ports, what: str) -> str:
    """Write down which boot the node is to leave in this turn; whoever calls again reads what the first one wrote."""
    text = f"{node.node_id} is to leave boot {node.boot_id[:8]}"
    line = TimelineEntry(ports.clock(), "progress", entry_id(request, what), text, node.boot_id)
    if ports.incidents.append(request.incident_id, line):
        return node.boot_id
    return noted_boot(request, ports, what) or node.boot_id


def noted_boot(request: StepRequest, ports: Ports, what: str) -> str:
    """The boot that was written down; empty: none was, so nothing has been asked of the node in this turn."""
    timeline = ports.incidents.history(request.incident_id).timeline
    return next((entry.data for entry in timeline if entry.entry_id == entry_id(request, what)), "")
