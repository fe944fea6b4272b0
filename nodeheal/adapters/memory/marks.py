"""Implements Marks in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeheal.domain.fleet.enrolment import EnrolmentTag, Registry, registries_of
from nodeheal.domain.fleet.node import Node


@dataclass
class MemoryMarks:
    """Implements Marks. Every registry knows every node, except those in `unknown`; `broken` ones raise on a change."""

    marked: set[tuple[Registry, str]] = field(default_factory=set)
    racks: dict[tuple[Registry, str], str] = field(default_factory=dict)
    unknown: set[tuple[Registry, str]] = field(default_factory=set)
    broken: set[Registry] = field(default_factory=set)

    def of(self, node: Node) -> Sequence[EnrolmentTag]:
        return [self._mark(registry, node.node_id) for registry in registries_of(node.provider)]

    def put(self, node: Node, mark: EnrolmentTag, rack: str = "") -> None:
        self._must_work(mark)
        self.marked.add((mark.registry, node.node_id))
        if rack:
            self.racks[mark.registry, node.node_id] = rack

    def take(self, node: Node, mark: EnrolmentTag) -> None:
        self._must_work(mark)
        self.marked.discard((mark.registry, node.node_id))
        self.racks.pop((mark.registry, node.node_id), None)

    def _must_work(self, mark: EnrolmentTag) -> None:
        if mark.registry in self.broken:
            raise OSError("the connection is broken")

    def _mark(self, registry: Registry, node_id: str) -> EnrolmentTag:
        if (registry, node_id) in self.unknown:
            return EnrolmentTag(registry, called=_called(registry))
        key = (registry, node_id)
        name = f"{registry.name}/{node_id}"
        return EnrolmentTag(registry, name, key in self.marked, self.racks.get(key, ""), _called(registry))


def _called(registry: Registry) -> str:
    return "node of the cluster" if registry is Registry.SCHEDULER else ""
