"""Whether a job can start on a node, from its record and its open incident."""

from collections.abc import Sequence

from nodeheal.contract.vocabulary import Availability
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.availability import availability
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports


def availability_of(nodes: Sequence[Node], ports: Ports) -> list[tuple[Node, Availability]]:
    """Each of these nodes with whether a job can start there."""
    now = ports.clock()
    return [
        (node, availability(node, open_incident_of(node, ports), now, starts_jobs=starts_jobs(node, ports)))
        for node in nodes
    ]


def open_incident_of(node: Node | NodeLiveness, ports: Ports) -> Incident | None:
    """The incident that the node's record names; None: none, or one that is gone."""
    if node.open_incident is None:
        return None
    try:
        return ports.incidents.incident(node.open_incident)
    except NotFound:
        return None


def starts_jobs(node: Node | NodeLiveness, ports: Ports) -> bool:
    """Whether nodeheal starts all jobs there."""
    scheduler = ports.schedulers.get(node.cluster.kind)
    return scheduler is None or scheduler.launcher is not None
