"""A scheduler that can do the least: it takes a node out of service and gives it back, and says nothing of what runs.

This is all that a folder in `nodeheal/adapters` must hold. Its row of the table stands under a word of the vocabulary,
which is closed: a test takes the word of another scheduler, whose row it leaves out.
"""

from collections.abc import Mapping, Sequence

from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.holder import HeldByPerson
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.scheduler import Drained, NodePlacement, Scheduler, SchedulerTraits


class ExampleGate:
    """Implements NodeGate. `closed`: who has taken each node out of service, by its machine."""

    def __init__(self, *machines: str) -> None:
        self.machines = machines
        self.closed: dict[str, str] = {}

    def placement_of(self, node: Node) -> NodePlacement:
        if node.instance_id not in self.machines:
            raise NotFound(f"{node.instance_id} is not in cluster {node.cluster.name}")
        by = self.closed.get(node.instance_id)
        holder = None if by in (None, "nodeheal") else HeldByPerson(by, how="closed")
        return NodePlacement(node.instance_id, by is None, holder)

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        for name in placements:
            self.closed.setdefault(name, "nodeheal")
        return {node.node_id: Drained(node.instance_id, has_tasks=True) for node in nodes}

    def undrain(self, node: Node, placement: NodePlacement) -> None:
        self.closed.pop(placement.name, None)


def example_scheduler(kind: SchedulerKind, gate: ExampleGate) -> Scheduler:
    """The row of the table."""
    return Scheduler(kind, SchedulerTraits(), gate)
