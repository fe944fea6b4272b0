"""How many new nodes of a pool are diagnosed at once: places of their own, apart from the disruption budget."""

from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports


def claim_place(node: Node, max_nodes: int, ports: Ports) -> bool:
    """Take a place for the node. Where there is none, those of incidents that broke off are given back first."""
    places = _places(node.pool)
    if ports.pools.claim(places, node.node_id, max_nodes):
        return True
    left = [holder for holder in ports.pools.holders(places) if not _is_under_way(holder, ports)]
    for holder in left:
        ports.pools.release(places, holder)
    return bool(left) and ports.pools.claim(places, node.node_id, max_nodes)


def has_place(node: Node, ports: Ports) -> bool:
    """Whether the node holds one of its pool's places."""
    return node.node_id in ports.pools.holders(_places(node.pool))


def free_place(incident: Incident, ports: Ports) -> None:
    """Give back what the incident of a new node holds."""
    if incident.is_of_new_node:
        ports.pools.release(_places(incident.pool), incident.node_id)


def _is_under_way(node_id: str, ports: Ports) -> bool:
    node = ports.nodes.get(node_id)
    if node is None or node.open_incident is None:
        return False
    return ports.incidents.incident(node.open_incident).is_under_way


def _places(pool: str) -> str:
    return f"{pool}#new"
