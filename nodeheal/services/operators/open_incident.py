"""A node's open incident, told to an operator who wants something else of the node: what it is, and the way on."""

from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.recovery.incident import short_id
from nodeheal.ports import Ports
from nodeheal.services.recovery.undo_isolation import incident_of


def why_busy(node: Node, ports: Ports) -> str:
    """Why nothing else is begun on the node, with the command that shows it and the one that ends it. Empty: it is
    free.
    """
    if node.open_incident is None:
        return ""
    show = f"`nodeheal incidents show {short_id(node.open_incident)}`"
    return f"{node.node_id} has an open incident, {node.open_incident}: see {show}; {_way_on(node, ports)}"


def _way_on(node: Node, ports: Ports) -> str:
    incident = incident_of(node, ports)
    if incident is None or incident.is_under_way:
        waits = incident is not None and incident.state is IncidentState.WAITING
        return f"it {'waits, and that says for what' if waits else 'is under way: wait until it has ended'}"
    if node.state in OUT_OF_SERVICE:
        return (
            f"then `nodeheal nodes release {node.node_id} --why …`, or `nodeheal nodes retire {node.node_id} --why …`"
        )
    return f"then `nodeheal incidents close {short_id(incident.incident_id)} --why …`"
