"""What our isolation has left on a node that is in service, or retired: its slot of the budget, and our switch."""

from dataclasses import replace

from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.recovery.incident import Incident
from nodeheal.operations.isolate import switch_on
from nodeheal.ports import Ports
from nodeheal.services.recovery.queue import wake_queue
from nodeheal.services.saving import change_node, node_of


def incident_of(node: Node, ports: Ports) -> Incident | None:
    """The incident that the node names, if there is one."""
    try:
        return ports.incidents.incident(node.open_incident) if node.open_incident else None
    except NotFound:
        return None


def is_a_humans(node: Node, ports: Ports) -> bool:
    """Whether the incident that the node names has been handed to a human: no workflow comes back to it."""
    incident = incident_of(node, ports)
    return incident is not None and incident.state is IncidentState.ESCALATED


def is_left_isolated(node: Node, ports: Ports) -> bool:
    """Whether it is not out of service (any more), and what broke off has left something of ours on it."""
    if node.state in OUT_OF_SERVICE:
        return False
    return is_a_humans(node, ports) or (node.drained_by_us and node.open_incident is None)


def undo_isolation(node: Node, ports: Ports) -> Node:
    """Free its slot, and let it take work if it was us who took that away. Not where it is out of service again, or
    another incident's. Safe to repeat: the incident that it names is forgotten last."""
    node = node_of(node.node_id, ports)
    if node.state in OUT_OF_SERVICE:
        return node  # for another incident, since it was given back, and its slot is that one's
    ports.pools.release(node.pool, node.node_id)
    wake_queue(node.pool, ports)

    def released(known: Node) -> Node:
        if not is_left_isolated(known, ports):
            return known
        is_off = known.drained_by_us and known.state is not NodeState.RETIRED
        if is_off:
            switch_on(known, ports)
        return replace(known, open_incident=None, drained_by_us=known.drained_by_us and not is_off)

    return change_node(node.node_id, ports, released)
