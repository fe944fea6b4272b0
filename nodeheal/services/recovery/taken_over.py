"""Whether a person has taken over a node that nodeheal has isolated."""

from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.holder import person_holding
from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports


def why_taken_over(node: Node, ports: Ports) -> str:
    """Returns in words what a person has done with the node since nodeheal drained it. Empty: nothing.

    A node that its scheduler does not know gets no work there.
    """
    if not node.drained_by_us:
        return ""
    try:
        placement = ports.scheduler_of(node).gate.placement_of(node)
    except NotFound:
        return ""
    if person := person_holding(placement.held_by):
        return f"{node.node_id} is held by a person ({person})"
    if placement.is_schedulable:
        return f"{node.node_id} takes new work again: a person, or its scheduler, has put it back into service"
    return ""
