"""A human's last word on a node that nodeheal has taken out of service: back to work, or away for good."""

from dataclasses import replace

from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.incident import TimelineEntry
from nodeheal.domain.node import OUT_OF_SERVICE, Node, moved
from nodeheal.ports import Ports
from nodeheal.services.queue import wake_queue
from nodeheal.services.steps import node_of


def release_node(node_id: str, why: str, ports: Ports, *, retire: bool = False) -> Node:
    """Free the node, its slot of the budget and its incident. Only what nodeheal did is undone.

    Raises NotFound for an unknown node, ValueError for one that is in service, NotAccepted when others write it.
    """
    node = node_of(node_id, ports)
    is_suspect = node.state is NodeState.SUSPECT and node.open_incident is None  # a stand-in that proved nothing
    if node.state not in OUT_OF_SERVICE and not is_suspect:
        raise ValueError(f"{node_id} is {node.state}: nodeheal has not taken it out of service")
    if not retire and node.drained_by_us:
        ports.scheduler.activate(node)
    quarantined = node if is_suspect else moved(node, NodeState.QUARANTINED, why)
    freed = moved(quarantined, NodeState.RETIRED if retire else NodeState.HEALTHY, why)
    if not ports.nodes.save(
        replace(freed, open_incident=None, drained_by_us=False, job_id=None, good_since=ports.clock())
    ):
        raise NotAccepted(f"{node_id} is being written by others; nothing was changed, try again")
    ports.pools.release(node.pool, node_id)
    wake_queue(node.pool, ports)
    _close(node, why, ports)
    return freed


def _close(node: Node, why: str, ports: Ports) -> None:
    if node.open_incident is None:
        return
    try:
        incident = ports.incidents.history(node.open_incident).incident
    except NotFound:
        return
    now = ports.clock()
    entry = TimelineEntry(now, "progress", f"released-{now:%Y%m%dT%H%M%S}", f"{node.node_id} given back by hand: {why}")
    ports.incidents.append(incident.incident_id, entry)
    ports.incidents.finish(replace(incident, state=IncidentState.CLOSED, closed_at=incident.closed_at or now))
