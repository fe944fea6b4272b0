"""What the sweep looks over, in memory: the stores' own dictionaries, and witnesses who say what they are told to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nodeheal.adapters.memory.stores import MemoryIncidentStore, MemoryNodeStore
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.node import Node
from nodeheal.domain.silence import Answer, Glimpse
from nodeheal.ports import Place


@dataclass
class MemoryWatchlist:
    """Watchlist."""

    nodes: MemoryNodeStore
    incidents: MemoryIncidentStore
    marked: Place = field(default_factory=Place)

    def pools(self) -> Sequence[str]:
        return sorted({node.pool for node in self.nodes.nodes.values()})

    def glimpses(self, pool: str, after: str, limit: int) -> tuple[Sequence[Glimpse], str]:
        here = {f"node#{n.state}#{n.node_id}": n for n in self.nodes.nodes.values() if n.pool == pool}
        keys = sorted(key for key in here if key > after)[:limit]
        found = [Glimpse(here[key].node_id, here[key].last_seen, here[key].state) for key in keys]
        return found, keys[-1] if len(keys) == limit else ""

    def unstarted(self, pool: str, since: datetime, until: datetime) -> Sequence[tuple[str, str]]:
        lost = [
            incident
            for incident in self.incidents.incidents.values()
            if incident.pool == pool and incident.state is IncidentState.OPEN and incident.turn == 0
        ]
        in_time = sorted(lost, key=lambda incident: (incident.opened_at, incident.incident_id))
        return [(i.incident_id, i.node_id) for i in in_time if since <= i.opened_at < until]

    def place(self) -> Place:
        return self.marked

    def mark(self, place: Place) -> None:
        self.marked = place


@dataclass
class MemoryWitnesses:
    """Witnesses. `says` holds what is said of each node; `asked` who was asked about, in order."""

    says: dict[str, tuple[Answer, ...]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def ask(self, node: Node) -> Sequence[Answer]:
        self.asked.append(node.node_id)
        return self.says.get(node.node_id, ())
