"""Implements Drills in memory."""

from dataclasses import dataclass, field

from nodeheal.domain.errors import NotFound
from nodeheal.domain.faults.drill import DcgmDrill
from nodeheal.domain.fleet.node import Node


@dataclass
class MemoryDrills:
    """Implements Drills. `injected` lists (node, boot, what) in order."""

    injected: list[tuple[str, str, str | DcgmDrill]] = field(default_factory=list)
    unknown_nodes: set[str] = field(default_factory=set)

    def inject(self, node: Node, line: str, why: str, seconds: int) -> str:
        return self._inject(node, line)

    def inject_dcgm(self, node: Node, drill: DcgmDrill, why: str, seconds: int) -> str:
        return self._inject(node, drill)

    def _inject(self, node: Node, what: str | DcgmDrill) -> str:
        if node.node_id in self.unknown_nodes:
            raise NotFound(f"{node.node_id} takes no commands: not registered with SSM")
        self.injected.append((node.node_id, node.boot_id, what))
        return f"drill-{len(self.injected)}"
