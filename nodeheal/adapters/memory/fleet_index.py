"""Implements FleetIndex over the stores' dictionaries, and LivenessProbes with preset answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from nodeheal.adapters.memory.stores import MemoryIncidentStore, MemoryNodeStore
from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.fleet.liveness import NodeLiveness, ProbeAnswer, liveness_of
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports.storage import SweepCursor


@dataclass
class MemoryFleetIndex:
    """Implements FleetIndex."""

    nodes: MemoryNodeStore
    incident_store: MemoryIncidentStore
    marked: SweepCursor = field(default_factory=SweepCursor)

    def pools(self) -> Sequence[str]:
        return sorted({node.pool for node in self._enrolled()})

    def liveness_page(self, pool: str, after: str, limit: int) -> tuple[Sequence[NodeLiveness], str]:
        rows = [liveness_of(node) for node in islice(self.nodes_after(pool, after), limit)]
        return rows, rows[-1].node_id if len(rows) == limit else ""

    def nodes_after(self, pool: str, node_id: str = "", page_size: int | None = None) -> Iterator[Node]:
        return (node for node in self.nodes.in_pool(pool) if node.node_id > node_id)

    def _enrolled(self) -> list[Node]:
        return [node for node in self.nodes.nodes.values() if node.state is not NodeState.UNENROLLED]

    def incidents(self, pool: str, state: IncidentState, since: datetime, until: datetime) -> Iterator[Incident]:
        in_state = [i for i in self.incident_store.incidents.values() if (i.pool, i.state) == (pool, state)]
        in_time = sorted(in_state, key=lambda incident: (incident.opened_at, incident.incident_id))
        return (incident for incident in in_time if since <= incident.opened_at < until)

    def newest_incidents(
        self, pool: str, state: IncidentState, since: datetime, until: datetime, page_size: int | None = None
    ) -> Iterator[Incident]:
        incidents = self.incidents(pool, state, since, until)
        return iter(sorted(incidents, key=lambda incident: incident.place, reverse=True))

    def cursor(self) -> SweepCursor:
        return self.marked

    def save_cursor(self, cursor: SweepCursor) -> None:
        self.marked = cursor


@dataclass
class MemoryLivenessProbes:
    """Implements LivenessProbes. `says` has the answers for each node; `asked` lists the queried nodes, in order."""

    says: dict[str, tuple[ProbeAnswer, ...]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def ask(self, node: Node) -> Sequence[ProbeAnswer]:
        self.asked.append(node.node_id)
        return self.says.get(node.node_id, ())
