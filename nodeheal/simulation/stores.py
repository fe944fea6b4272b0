"""The memory stores with ordered lists and cached timelines: a year of a large pool reads them often."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from nodeheal.adapters.memory.fleet_index import MemoryFleetIndex
from nodeheal.adapters.memory.heartbeats import MemoryHeartbeats
from nodeheal.adapters.memory.stores import (
    MemoryIncidentStore,
    MemoryNodeStore,
    MemoryOperationStore,
    MemoryPoolStore,
)
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.domain.recovery.decision_context import Observation
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.domain.recovery.timeline_fold import Fold
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.index import Index, Key

_KEPT_WHEN_OVER = timedelta(days=2)
Saved = Callable[[Node | None, Node], None]


class SimNodes(MemoryNodeStore):
    """Implements NodeStore. `on_save` receives each write with the value that it replaces."""

    def __init__(self, index: Index) -> None:
        super().__init__()
        self._index = index
        self._listed: dict[str, dict[str, None]] = {}
        self.on_save: Saved = lambda before, after: None

    def put(self, nodes: Sequence[Node]) -> None:
        """Add records from before the simulation."""
        for node in nodes:
            self.nodes[node.node_id] = node
            self._listed.setdefault(node.pool, {})[node.node_id] = None

    def save(self, node: Node) -> bool:
        before = self.nodes.get(node.node_id)
        if not super().save(node):
            return False
        if before is None:
            listed = self._listed.setdefault(node.pool, {})
            listed[node.node_id] = None
            self._listed[node.pool] = dict.fromkeys(sorted(listed))
        self._index.wrote(("node", node.node_id), before)
        self.on_save(before, self.nodes[node.node_id])
        return True

    def in_pool(self, pool: str) -> Sequence[Node]:
        listed, nodes = self._listed.get(pool, {}), self.nodes
        behind = {key for key in self._index.behind("node") if key[1] in listed}
        if not behind:
            return [nodes[node_id] for node_id in listed]
        shown = {**{node_id: nodes[node_id] for node_id in listed}, **self._as_it_was(behind)}
        return [node for node in shown.values() if node is not None]

    def _as_it_was(self, behind: Iterable[Key]) -> Mapping[str, Node | None]:
        return {key[1]: self._index.shown(key, self.nodes[key[1]]) for key in behind}

    def record(self, event: HealthEvent, job_id: str | None, note: str = "", *, in_pool: bool = True) -> None:
        is_new = (event.node_id, event.event_id, bool(note)) not in self.recorded
        super().record(event, job_id, note, in_pool=in_pool)
        if is_new:
            self._index.wrote(("observation", event.node_id, event.event_id), None)

    def seen_in_pool(self, pool: str, since: datetime) -> Sequence[Observation]:
        shown, observations = self._index.shown, super().seen_in_pool(pool, since)
        return [
            entry for entry in observations if shown(("observation", entry.node_id, entry.event_id), entry) is not None
        ]


class SimIncidents(MemoryIncidentStore):
    """Implements IncidentStore, with a cache of unchanged timelines. `on_change` receives each head that is written."""

    def __init__(self, nodes: SimNodes, index: Index) -> None:
        super().__init__(nodes)
        self._index = index
        self._read: dict[str, tuple[int, Incident, History]] = {}
        self.live: dict[str, None] = {}
        self.on_change: Callable[[Incident | None, Incident], None] = lambda before, after: None

    def open(self, incident: Incident, node: Node) -> bool:
        if not super().open(incident, node):
            return False
        self._changed(None, incident.incident_id)
        return True

    def advance(self, incident: Incident, entries: Sequence[object]) -> bool:
        before = self.incidents[incident.incident_id]
        is_first = super().advance(incident, entries)  # type: ignore[arg-type]
        if is_first:
            self._changed(before, incident.incident_id)
        return is_first

    def finish(self, incident: Incident, node: Node | None = None) -> bool:
        before = self.incidents[incident.incident_id]
        is_written = super().finish(incident, node)
        if is_written:
            self._changed(before, incident.incident_id)
        return is_written

    def fold(self, incident_id: str, fold: Fold) -> bool:
        self._read.pop(incident_id, None)
        return super().fold(incident_id, fold)

    def history(self, incident_id: str) -> History:
        head = self.incidents.get(incident_id)
        size, known, read = self._read.get(incident_id, (-1, None, None))
        if read is None or known is not head or size != len(self.entries[incident_id]):
            read = super().history(incident_id)
            assert head is not None
            self._read[incident_id] = (len(self.entries[incident_id]), head, read)
        return read

    def _changed(self, before: Incident | None, incident_id: str) -> None:
        after = self.incidents[incident_id]
        self._index.wrote(("incident", incident_id), before)
        if after.state in (IncidentState.OPEN, IncidentState.WAITING):
            self.live[incident_id] = None
        else:
            self.live.pop(incident_id, None)
            self._read.pop(incident_id, None)
        self.on_change(before, after)


class SimOperations(MemoryOperationStore):
    """Implements OperationStore, with an index of an incident's open operations. Queues are read from the simulated
    index.
    """

    def __init__(self, index: Index, agenda: Agenda) -> None:
        super().__init__()
        self._index, self._agenda = index, agenda
        self._of: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
        self._lines: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
        self._over: deque[tuple[datetime, tuple[str, str]]] = deque()

    def save(self, operation: Operation) -> bool:
        key = (operation.owner, operation.operation_id)
        before = self.operations.get(key)
        if not super().save(operation):
            return False
        if before is not None and before.line is not None:
            self._lines[before.line[0]].pop(key, None)
        if operation.line is not None or (before is not None and before.line is not None):
            self._index.wrote(("operation", *key), before)
        if operation.line is not None:
            self._lines[operation.line[0]][key] = None
        if operation.state is not OperationState.DELIVERED:
            self._of[operation.incident_id][key] = None
            return True
        self._of[operation.incident_id].pop(key, None)
        if not self._of[operation.incident_id]:
            del self._of[operation.incident_id]
        if operation.line is not None:
            self._lines[operation.line[0]].pop(key, None)
        self._over.append((self._agenda.clock() + _KEPT_WHEN_OVER, key))
        self._forget_those_long_over()
        return True

    def queued(self, line: str) -> Sequence[Operation]:
        keys = [*self._lines.get(line, ()), *((owner, name) for _, owner, name in self._index.behind("operation"))]
        shown = [self._index.shown(("operation", *key), self.operations.get(key)) for key in dict.fromkeys(keys)]
        open_ones = [entry for entry in shown if entry is not None and entry.state is not OperationState.DELIVERED]
        standing = [
            (entry.line, entry.owner, entry) for entry in open_ones if entry.line is not None and entry.line[0] == line
        ]
        return [entry for *_, entry in sorted(standing, key=lambda each: each[:2])]

    def of(self, incident_id: str) -> list[Operation]:
        """Return the open operations of an incident, or of a round of a job."""
        return [self.operations[key] for key in self._of.get(incident_id, ())]

    def _forget_those_long_over(self) -> None:
        """Delete expired operations, as the table's expiry does."""
        while self._over and self._over[0][0] < self._agenda.clock():
            _, key = self._over.popleft()
            known = self.operations.get(key)
            if known is not None and known.state is OperationState.DELIVERED:
                del self.operations[key]


class SimPools(MemoryPoolStore):
    """Implements PoolStore. `on_release` receives each slot that is given back, before it is."""

    def __init__(self) -> None:
        super().__init__()
        self.on_release: Callable[[str, str], None] = lambda pool, node_id: None

    def release(self, pool: str, node_id: str) -> None:
        self.on_release(pool, node_id)
        super().release(pool, node_id)


class SimFleetIndex(MemoryFleetIndex):
    """Implements FleetIndex, without searching closed items for open ones."""

    def __init__(self, nodes: SimNodes, incidents: SimIncidents, index: Index) -> None:
        super().__init__(nodes, incidents)
        self._sim_nodes, self._incidents, self._index = nodes, incidents, index

    def pools(self) -> Sequence[str]:
        return sorted(self._sim_nodes._listed)

    def incidents(self, pool: str, state: IncidentState, since: datetime, until: datetime) -> Iterator[Incident]:
        if state not in (IncidentState.OPEN, IncidentState.WAITING):
            yield from super().incidents(pool, state, since, until)
            return
        listed = dict.fromkeys([*self._incidents.live, *(name for _, name in self._index.behind("incident"))])
        shown = [self._index.shown(("incident", name), self._incidents.incidents[name]) for name in listed]
        live = [incident for incident in shown if incident is not None]
        matches = [
            incident
            for incident in live
            if (incident.pool, incident.state) == (pool, state) and since <= incident.opened_at < until
        ]
        yield from sorted(matches, key=lambda incident: (incident.opened_at, incident.incident_id))


class SimHeartbeats(MemoryHeartbeats):
    """Implements Heartbeats, computed from the nodes' true state."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet

    def newest(self) -> Mapping[str, Heartbeat]:
        return {node.node_id: self._fleet.beat_of(node) for node in self._fleet.nodes.values() if not node.is_gone}

    def want(self, heartbeat: Heartbeat, every_seconds: float) -> None:
        """Do nothing: simulated nodes have the interval already."""
