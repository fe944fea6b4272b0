"""Stores state in dictionaries, with the conditional writes of the real table."""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

from nodeheal.contract.health_event import HealthEvent, NodeHardwareReported
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action, IncidentState, NodeState
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import Pause, Pauses, pause_of
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.jobs.directory_lease import lease_path, overlap
from nodeheal.domain.jobs.job import CheckAnswer, Hang, Job, Run
from nodeheal.domain.jobs.job_findings import NotedFinding
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.domain.records_epoch import Epoch
from nodeheal.domain.recovery import attempt_budget
from nodeheal.domain.recovery.decision_context import Observation, observation_of
from nodeheal.domain.recovery.incident import History, Incident, read_history
from nodeheal.domain.recovery.timeline import TimelineEntry, event_entry
from nodeheal.domain.recovery.timeline_fold import Fold
from nodeheal.ports.clock import Clock
from nodeheal.ports.storage import FAULTS_LOOKED_UP


@dataclass
class MemoryNodeStore:
    """Implements NodeStore."""

    nodes: dict[str, Node] = field(default_factory=dict)
    recorded: dict[tuple[str, str, bool], tuple[HealthEvent, Observation]] = field(default_factory=dict)
    reports: Counter[tuple[str, str]] = field(default_factory=Counter)
    _by_node: defaultdict[str, list[Observation]] = field(default_factory=lambda: defaultdict(list))
    _by_pool: defaultdict[str, list[Observation]] = field(default_factory=lambda: defaultdict(list))

    def get(self, node_id: str) -> Node | None:
        return self.nodes.get(node_id)

    def save(self, node: Node) -> bool:
        stored = self.nodes.get(node.node_id)
        if (stored.version if stored else 0) != node.version:
            return False
        self.nodes[node.node_id] = replace(node, version=node.version + 1)
        return True

    def in_pool(self, pool: str) -> Sequence[Node]:
        listed = (n for n in self.nodes.values() if n.pool == pool and n.state is not NodeState.UNENROLLED)
        return sorted(listed, key=lambda n: n.node_id)

    def unenrolled(self) -> Sequence[Node]:
        unenrolled = (n for n in self.nodes.values() if n.state is NodeState.UNENROLLED)
        return sorted(unenrolled, key=lambda n: n.node_id)

    def record(self, event: HealthEvent, job_id: str | None, note: str = "", *, in_pool: bool = True) -> None:
        key = (event.node_id, event.event_id, bool(note))
        if key in self.recorded:
            return
        observation = observation_of(event, job_id, note)
        self.recorded[key] = (event, observation)
        if not note:
            insort(self._by_node[event.node_id], observation, key=_IN_TIME)
            if in_pool:
                insort(self._by_pool[event.pool], observation, key=_IN_TIME)

    def count_report(self, node_id: str, window: str, until: datetime) -> int:
        self.reports[node_id, window] += 1
        return self.reports[node_id, window]

    def observations(
        self, node_id: str, node_since: datetime, pool: str, pool_since: datetime
    ) -> Sequence[Observation]:
        own = _since(self._by_node[node_id], node_since)
        others = self.seen_in_pool(pool, pool_since)
        by_event = {(s.node_id, s.event_id): s for s in (*own, *others)}
        return sorted(by_event.values(), key=_IN_TIME)

    def seen_in_pool(self, pool: str, since: datetime) -> Sequence[Observation]:
        """Return what the table reads from its index."""
        return _since(self._by_pool[pool], since)


_IN_TIME = attrgetter("at", "event_id", "node_id")


def _since(in_time: list[Observation], since: datetime) -> list[Observation]:
    """Return the newest ones, up to the number that is looked up."""
    return in_time[bisect_left(in_time, since, key=lambda observation: observation.at) :][-FAULTS_LOOKED_UP:]


@dataclass
class MemoryHardwareStore:
    """Implements HardwareStore."""

    reports: dict[str, NodeHardwareReported] = field(default_factory=dict)

    def save(self, report: NodeHardwareReported) -> None:
        kept = self.reports.get(report.node_id)
        if kept is None or kept.observed_at < report.observed_at:
            self.reports[report.node_id] = report

    def of(self, node_id: str) -> NodeHardwareReported | None:
        return self.reports.get(node_id)


@dataclass
class MemoryIncidentStore:
    """Implements IncidentStore."""

    nodes: MemoryNodeStore
    incidents: dict[str, Incident] = field(default_factory=dict)
    entries: dict[str, dict[str, TimelineEntry]] = field(default_factory=dict)

    def open(self, incident: Incident, node: Node) -> bool:
        if incident.incident_id in self.incidents or not self.nodes.save(node):
            return False
        self.incidents[incident.incident_id] = incident
        self.append(incident.incident_id, event_entry(incident.root))
        return True

    def append(self, incident_id: str, entry: TimelineEntry) -> bool:
        entries = self.entries.setdefault(incident_id, {})
        if entry.entry_id in entries:
            return False
        entries[entry.entry_id] = entry
        return True

    def fold(self, incident_id: str, fold: Fold) -> bool:
        entries = self.entries[incident_id]
        is_as_read = all(entries.get(entry.entry_id) is not None for entry in fold.gone)
        target = entries.get(fold.before.entry_id)
        if not is_as_read or target is None or target.times != fold.before.times:
            return False
        for entry in fold.gone:
            del entries[entry.entry_id]
        entries[fold.into.entry_id] = fold.into
        return True

    def incident(self, incident_id: str) -> Incident:
        if incident_id not in self.incidents:
            raise NotFound(f"no incident {incident_id}")
        return self.incidents[incident_id]

    def history(self, incident_id: str) -> History:
        return read_history(self.incident(incident_id), list(self.entries[incident_id].values()))

    def advance(self, incident: Incident, entries: Sequence[TimelineEntry]) -> bool:
        stored = self.incidents[incident.incident_id]
        if stored.turn != incident.turn - 1 or stored.state is IncidentState.ESCALATED:
            return False
        self.incidents[incident.incident_id] = replace(
            stored,
            turn=incident.turn,
            state=incident.state,
            step=incident.step,
            step_at=incident.step_at,
            awaits=incident.awaits,
        )
        for entry in entries:
            self.append(incident.incident_id, entry)
        return True

    def finish(self, incident: Incident, node: Node | None = None) -> bool:
        if node is not None and not self.nodes.save(node):
            return False
        stored = self.incidents[incident.incident_id]
        self.incidents[incident.incident_id] = replace(
            stored,
            state=incident.state,
            ending=incident.ending,
            summary=incident.summary,
            closed_at=incident.closed_at,
            has_only_restarted=incident.has_only_restarted,
        )
        return True


@dataclass
class MemoryAttemptLedger:
    """Implements AttemptLedger."""

    clock: Clock
    counters: dict[tuple[str, str], dict[str, datetime]] = field(default_factory=dict)

    def reserve(self, scope: str, attempt_id: str, limit: AttemptLimit) -> tuple[bool, int]:
        key = (scope, limit.group.value)
        granted, counted = attempt_budget.reserve(self.counters.get(key, {}), attempt_id, limit, self.clock())
        self.counters[key] = counted
        return granted, len(counted)

    def refund(self, scope: str, attempt_id: str, limit: AttemptLimit) -> None:
        self.counters.get((scope, limit.group.value), {}).pop(attempt_id, None)

    def spent(self, scope: str, *limits: AttemptLimit) -> Mapping[Action, int]:
        known = {limit.group: self.counters.get((scope, limit.group.value), {}) for limit in limits}
        return {limit.group: len(attempt_budget.in_window(known[limit.group], limit, self.clock())) for limit in limits}


@dataclass
class MemoryPoolStore:
    """Implements PoolStore."""

    slots: dict[str, list[str]] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)

    def claim(self, pool: str, node_id: str, slots: int) -> bool:
        held = self.slots.setdefault(pool, [])
        if node_id in held:
            return True
        if len(held) >= slots:
            return False
        held.append(node_id)
        return True

    def release(self, pool: str, node_id: str) -> None:
        held = self.slots.get(pool, [])
        if node_id in held:
            held.remove(node_id)

    def holders(self, pool: str) -> Sequence[str]:
        return sorted(self.slots.get(pool, []))

    def get(self, pool: str) -> Pool:
        return self.pools.get(pool, Pool(pool))

    def save(self, pool: Pool) -> bool:
        if self.get(pool.name).version != pool.version:
            return False
        self.pools[pool.name] = replace(pool, version=pool.version + 1)
        return True


@dataclass
class MemoryPauseStore:
    """Implements PauseStore. The fields of an item are as a person may have written them."""

    items: dict[str, Mapping[str, object]] = field(default_factory=dict)

    def read(self) -> Pauses:
        return Pauses({key: pause_of(fields) for key, fields in self.items.items()})

    def save(self, key: str, pause: Pause) -> None:
        self.items[key] = {"until": pause.until.isoformat(), "why": pause.why}


@dataclass
class MemoryOperationStore:
    """Implements OperationStore."""

    operations: dict[tuple[str, str], Operation] = field(default_factory=dict)
    _open: defaultdict[str, dict[tuple[str, str], None]] = field(default_factory=lambda: defaultdict(dict))

    def get(self, owner: str, operation_id: str) -> Operation | None:
        return self.operations.get((owner, operation_id))

    def save(self, operation: Operation) -> bool:
        key = (operation.owner, operation.operation_id)
        stored = self.operations.get(key)
        if (stored.version if stored else 0) != operation.version:
            return False
        self.operations[key] = replace(operation, version=operation.version + 1)
        if operation.state is not OperationState.DELIVERED:
            self._open[operation.owner][key] = None
        elif operation.owner in self._open:
            self._open[operation.owner].pop(key, None)
            if not self._open[operation.owner]:
                del self._open[operation.owner]
        return True

    def open_of(self, owner: str) -> Sequence[Operation]:
        return [self.operations[key] for key in sorted(self._open.get(owner, ()))]

    def queued(self, line: str) -> Sequence[Operation]:
        standing = [
            (operation.line[1], operation)
            for operation in self.all_open()
            if operation.line and operation.line[0] == line
        ]
        return [operation for _, operation in sorted(standing, key=lambda pair: pair[0])]

    def behind(self, operation: Operation, most: int) -> Sequence[tuple[str, str]]:
        line, place = operation.line or ("", "")
        behind = [other for other in self.queued(line) if other.line and other.line[1] > place]
        return [(other.owner, other.operation_id) for other in behind[:most]]

    def all_open(self) -> list[Operation]:
        """Return every operation whose workflow does not have its result yet."""
        return [self.operations[key] for keys in list(self._open.values()) for key in keys]


@dataclass
class MemoryJobStore:
    """Implements JobStore."""

    jobs: dict[str, Job] = field(default_factory=dict)
    kept_runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    listed_as_over: set[str] = field(default_factory=set)  # in the index, which only `save` writes

    def get(self, job_id: str) -> Job | None:
        return self.jobs.get(job_id)

    def save(self, job: Job) -> bool:
        stored = self.jobs.get(job.job_id)
        if (stored.version if stored else 0) != job.version:
            return False
        self.jobs[job.job_id] = replace(job, version=job.version + 1)
        (self.listed_as_over.add if job.is_over else self.listed_as_over.discard)(job.job_id)
        return True

    def get_run(self, job_id: str, number: int) -> Run | None:
        return self.kept_runs.get((job_id, number))

    def save_run(self, run: Run) -> bool:
        stored = self.kept_runs.get((run.job_id, run.number))
        if (stored.version if stored else 0) != run.version:
            return False
        self.kept_runs[run.job_id, run.number] = replace(run, version=run.version + 1)
        return True

    def runs(self, job_id: str) -> Sequence[Run]:
        return [run for (name, _), run in sorted(self.kept_runs.items()) if name == job_id]

    def after(self, pool: str, job_id: str, *, is_over: bool, page_size: int | None = None) -> Iterator[Job]:
        behind = (job for name, job in sorted(self.jobs.items()) if name > job_id and job.pool == pool)
        return (job for job in behind if (job.job_id in self.listed_as_over) is is_over)


@dataclass
class MemoryJobNotes:
    """Implements JobNotes."""

    store: MemoryJobStore
    kept_answers: dict[tuple[str, str, str], CheckAnswer] = field(default_factory=dict)
    hangs: dict[str, Hang] = field(default_factory=dict)
    leases: dict[str, str] = field(default_factory=dict)

    def in_pool(self, pool: str, *, live_only: bool = False) -> Sequence[Job]:
        jobs = [job for _, job in sorted(self.store.jobs.items()) if job.pool == pool]
        return [job for job in jobs if not (live_only and job.job_id in self.store.listed_as_over)]

    def note_hang(self, hang: Hang) -> None:
        self.hangs[hang.run] = hang

    def hang_of(self, run: str) -> Hang | None:
        return self.hangs.get(run)

    def note_answer(self, job_id: str, answer: CheckAnswer) -> None:
        self.kept_answers.setdefault((job_id, answer.request_id, answer.node_id), answer)

    def answers(self, job_id: str) -> Sequence[CheckAnswer]:
        return [self.kept_answers[key] for key in sorted(self.kept_answers) if key[0] == job_id]

    def hold(self, directory: str, job_id: str) -> str:
        for held, holder in self.leases.items():
            if holder != job_id and overlap(held, directory):
                return holder
        self.leases[lease_path(directory)] = job_id
        return job_id

    def release_directory(self, directory: str, job_id: str) -> None:
        if self.leases.get(lease_path(directory)) == job_id:
            del self.leases[lease_path(directory)]


@dataclass
class MemoryJobFindings:
    """Implements JobFindings."""

    kept: dict[tuple[str, int, str], NotedFinding] = field(default_factory=dict)

    def note(self, finding: NotedFinding) -> None:
        self.kept[finding.finding.job_id, finding.finding.run, finding.finding.kind] = finding

    def of(self, job_id: str, run: int) -> Sequence[NotedFinding]:
        return [finding for key, finding in sorted(self.kept.items()) if key[:2] == (job_id, run)]


@dataclass
class MemoryRecordsEpoch:
    """Implements RecordsEpoch. A restored table has an older `in_table`."""

    in_table: datetime | None = None
    outside: datetime | None = None

    def read(self) -> Epoch:
        return Epoch(self.in_table, self.outside)

    def renew(self, known: Epoch, at: datetime) -> bool:
        if self.in_table != known.in_table:
            return False
        self.in_table = at
        self.outside = max(at, self.outside or at)
        return True
