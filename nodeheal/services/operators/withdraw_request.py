"""Take back what was asked for by hand, while it only waits: nothing was touched yet, and nothing will be."""

from dataclasses import replace

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import IncidentState, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.recovery.timeline import RequestWithdrawn, TimelineEntry
from nodeheal.domain.review.review import title_of
from nodeheal.ports import Ports
from nodeheal.services.operators.release_node import wake_its_workflow
from nodeheal.services.recovery.queue import wake_queue
from nodeheal.services.saving import SAVE_TRIES, node_of


def withdraw_request(node_id: str, why: str, ports: Ports, actor: str | None = None) -> str | None:
    """The incident that was withdrawn. None: no request by hand waits for this node, and nothing changed.

    The node is let go in the same write: whatever the workflow decides from then on, it finds that the node is not its
    own; and where this dies after it, the node has no incident that nobody works on any more. What comes after may be
    lost: the workflow ends at its deadline then, and the sweep wakes the first in line.

    Raises NotFound for an unknown node, ValueError where something else was reported since, NotAccepted when others
    write it.
    """
    for _ in range(SAVE_TRIES):
        node = node_of(node_id, ports)
        incident = waiting_request(node, ports)
        if incident is None:
            return None
        reason = f"what was asked for is withdrawn by hand: {why}"
        over = replace(incident, state=IncidentState.CLOSED, summary=reason, closed_at=ports.clock())
        if ports.incidents.finish(over, replace(node, open_incident=None)):
            entry = TimelineEntry(ports.clock(), "withdrawn-by-hand", reason, RequestWithdrawn(), actor=actor)
            ports.incidents.append(incident.incident_id, entry)
            wake_its_workflow(node, ports)
            wake_queue(node.pool, ports)  # it may have been called for a slot that it does not take
            return incident.incident_id
    raise NotAccepted(f"{node_id} is being written by others; nothing was withdrawn, try again")


def waiting_request(node: Node, ports: Ports) -> Incident | None:
    """The request by hand that can be withdrawn. Raises ValueError where something else was reported since."""
    if node.open_incident is None or node.state in OUT_OF_SERVICE:
        return None
    history = ports.incidents.history(node.open_incident)
    incident = history.incident
    if incident.root.code != OPERATOR_REQUEST or incident.state is not IncidentState.WAITING:
        return None
    others = list(dict.fromkeys(title_of(event) for event in history.events if _is_a_finding(event)))
    if others:
        reason = f"{node.node_id} has reported {', '.join(others)} since"
        raise ValueError(f"{reason}: {incident.incident_id} is about that, too, and is not withdrawn")
    return incident


def _is_a_finding(event: HealthEvent) -> bool:
    return event.code != OPERATOR_REQUEST and event.verdict is not Verdict.OK
