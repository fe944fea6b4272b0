"""A human's last word on an incident that was handed to them and whose node they need not give back."""

from dataclasses import replace

from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.unmanaged_tasks import tasks_not_restarted
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.recovery.timeline import NodeReleased, TimelineEntry
from nodeheal.ports import Ports
from nodeheal.services.recovery.undo_isolation import undo_isolation


def close_incident(incident_id: str, why: str, ports: Ports, actor: str | None = None) -> bool:
    """Write down that it is seen to. False: it was closed already, and nothing changed. Safe to repeat.

    Raises NotFound for an unknown incident, ValueError for one that is under way or that keeps a node out of service,
    NotAccepted when others write a node of it.
    """
    incident = check_close(incident_id, ports)
    if incident.state is IncidentState.CLOSED:
        return False
    nodes = _nodes_of(incident, ports)
    # Released first: a node that names a closed incident would lose its next fault.
    for node_id in nodes:
        _release_node(node_id, incident_id, ports)
    write_closed(incident, "closed-by-hand", f"closed by hand: {why}", ports, actor)
    return True


def check_close(incident_id: str, ports: Ports) -> Incident:
    """The incident. Raises as close_incident does, before anything is changed."""
    incident = ports.incidents.incident(incident_id)
    if incident.state is IncidentState.CLOSED:
        return incident
    if incident.state is not IncidentState.ESCALATED:
        raise ValueError(
            f"{incident_id} is {incident.state}, it has not ended: `nodeheal incidents show {incident_id}`"
        )
    for node_id in _nodes_of(incident, ports):
        _held(node_id, incident_id, ports)  # may raise: before any node is let go
    return incident


def write_closed(
    incident: Incident, entry_id: str, text: str, ports: Ports, actor: str | None, payload: NodeReleased | None = None
) -> None:
    """Close it, with a line that says by whose word. When it ended, if it had, stays as it was."""
    now, message = ports.clock(), f"{text}{_what_stays_down(incident, ports)}"
    ports.incidents.append(incident.incident_id, TimelineEntry(now, entry_id, message, payload, actor=actor))
    ports.incidents.finish(replace(incident, state=IncidentState.CLOSED, closed_at=incident.closed_at or now))


def _what_stays_down(incident: Incident, ports: Ports) -> str:
    """Returns the unmanaged tasks that stay stopped: the workflow that would have restarted them has ended."""
    if incident.state is not IncidentState.ESCALATED:
        return ""
    down = tasks_not_restarted(ports.incidents.history(incident.incident_id).timeline)
    return f"; stopped for it, and not started again: {', '.join(map(str, down))}" if down else ""


def _nodes_of(incident: Incident, ports: Ports) -> list[str]:
    """Returns its own node, and those that still name it: a workflow that broke off has released none."""
    others = (node.node_id for node in ports.nodes.in_pool(incident.pool) if node.open_incident == incident.incident_id)
    return list(dict.fromkeys([incident.node_id, *others]))


def _held(node_id: str, incident_id: str, ports: Ports) -> Node | None:
    """The node, if the incident still holds it. Raises ValueError where it keeps it out of service."""
    node = ports.nodes.get(node_id)
    if node is None or node.open_incident != incident_id:
        return None
    if node.state in OUT_OF_SERVICE:
        how = f"`nodeheal nodes release {node_id} --why …` or `nodeheal nodes retire {node_id} --why …` closes it"
        raise ValueError(f"{incident_id} keeps {node_id} {node.state}: {how}")
    return node


def _release_node(node_id: str, incident_id: str, ports: Ports) -> None:
    """Releases a node in service. Marks that a broken-off workflow left go first, the incident's name last."""
    node = _held(node_id, incident_id, ports)
    if node is None:
        return
    try:
        undo_isolation(node, ports)
    except NotAccepted as busy:
        raise NotAccepted(f"{busy}; {incident_id} is not closed, try again") from busy
