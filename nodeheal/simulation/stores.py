"""The memory stores, with lists kept in order and stories read once: a year of a large pool asks for them often."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from nodeheal.adapters.memory.heartbeats import MemoryHeartbeats
from nodeheal.adapters.memory.stores import (
    MemoryIncidentStore,
    MemoryJobNotes,
    MemoryJobStore,
    MemoryNodeStore,
    MemoryWaitStore,
)
from nodeheal.adapters.memory.watch import MemoryWatchlist
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.beat import Beat
from nodeheal.domain.incident import History, Incident
from nodeheal.domain.job import CheckAnswer, Job, Run
from nodeheal.domain.node import Node
from nodeheal.ports import Wait
from nodeheal.simulation.fleet import Fleet

Saved = Callable[[Node | None, Node], None]


class SimNodes(MemoryNodeStore):
    """NodeStore. `on_save` sees each write with what it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self._listed: dict[str, dict[str, None]] = {}
        self.on_save: Saved = lambda before, after: None

    def put(self, nodes: Sequence[Node]) -> None:
        """Records that were there before the simulation begins."""
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
        self.on_save(before, self.nodes[node.node_id])
        return True

    def in_pool(self, pool: str) -> Sequence[Node]:
        return [self.nodes[node_id] for node_id in self._listed.get(pool, ())]


class SimIncidents(MemoryIncidentStore):
    """IncidentStore. A story that has not changed is not read again. `on_change` sees each head that is written."""

    def __init__(self, nodes: SimNodes) -> None:
        super().__init__(nodes)
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

    def finish(self, incident: Incident) -> None:
        before = self.incidents[incident.incident_id]
        super().finish(incident)
        self._changed(before, incident.incident_id)

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
        if after.state in (IncidentState.OPEN, IncidentState.WAITING):
            self.live[incident_id] = None
        else:
            self.live.pop(incident_id, None)
            self._read.pop(incident_id, None)
        self.on_change(before, after)


class SimWaits(MemoryWaitStore):
    """WaitStore, that knows which waits an incident has."""

    def __init__(self) -> None:
        super().__init__()
        self._of: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
        self._lines: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)

    def save(self, wait: Wait) -> None:
        self._forget(self.waits.get((wait.kind, wait.key)))
        super().save(wait)
        self._of[wait.incident_id][wait.kind, wait.key] = None
        if wait.line:
            self._lines[wait.line[0]][wait.kind, wait.key] = None

    def drop(self, wait: Wait) -> None:
        before = self.waits.get((wait.kind, wait.key))
        super().drop(wait)
        if (wait.kind, wait.key) not in self.waits:
            self._forget(before)

    def in_line(self, line: str) -> Sequence[Wait]:
        standing = [self.waits[key] for key in self._lines.get(line, ())]
        return sorted(standing, key=lambda wait: wait.line[1] if wait.line else "")

    def of(self, incident_id: str) -> list[Wait]:
        """The waits that an incident, or a round of a job, has."""
        return [self.waits[key] for key in self._of.get(incident_id, ())]

    def _forget(self, wait: Wait | None) -> None:
        if wait is None:
            return
        self._of[wait.incident_id].pop((wait.kind, wait.key), None)
        if not self._of[wait.incident_id]:
            del self._of[wait.incident_id]
        if wait.line:
            self._lines[wait.line[0]].pop((wait.kind, wait.key), None)


class SimJobs(MemoryJobStore):
    """JobStore, that finds a job's runs without looking through all. `on_save` sees each write of a job."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: defaultdict[str, dict[int, None]] = defaultdict(dict)
        self.alive: dict[str, None] = {}
        self.on_save: Callable[[Job], None] = lambda job: None

    def save(self, job: Job) -> bool:
        before = self.jobs.get(job.job_id)
        if not super().save(job):
            return False
        if job.is_over:
            self.alive.pop(job.job_id, None)
        else:
            self.alive[job.job_id] = None
        if before is None or before.is_over != job.is_over:
            self.on_save(self.jobs[job.job_id])
        return True

    def save_run(self, run: Run) -> bool:
        is_saved = super().save_run(run)
        if is_saved:
            self._runs[run.job_id][run.number] = None
        return is_saved

    def runs(self, job_id: str) -> Sequence[Run]:
        return [self.kept_runs[job_id, number] for number in sorted(self._runs.get(job_id, ()))]


class SimJobNotes(MemoryJobNotes):
    """JobNotes, the same."""

    def __init__(self, jobs: SimJobs) -> None:
        super().__init__(jobs)
        self._sim_jobs = jobs
        self._of: defaultdict[str, dict[tuple[str, str, str], None]] = defaultdict(dict)

    def in_pool(self, pool: str, *, live_only: bool = False) -> Sequence[Job]:
        if not live_only:
            return super().in_pool(pool)
        named = sorted({*self._sim_jobs.alive, *(set(self._sim_jobs.jobs) - self._sim_jobs.listed_as_over)})
        return [job for job in (self._sim_jobs.jobs[name] for name in named) if job.pool == pool]

    def note_answer(self, job_id: str, answer: CheckAnswer) -> None:
        super().note_answer(job_id, answer)
        self._of[job_id][job_id, answer.request_id, answer.node_id] = None

    def answers(self, job_id: str) -> Sequence[CheckAnswer]:
        return [self.kept_answers[key] for key in sorted(self._of.get(job_id, ()))]


class SimWatchlist(MemoryWatchlist):
    """Watchlist. Those who are over are not looked through for those who are not."""

    def __init__(self, nodes: SimNodes, incidents: SimIncidents) -> None:
        super().__init__(nodes, incidents)
        self._sim_nodes, self._incidents = nodes, incidents

    def pools(self) -> Sequence[str]:
        return sorted(self._sim_nodes._listed)

    def incidents(self, pool: str, state: IncidentState, since: datetime, until: datetime) -> Iterator[Incident]:
        if state not in (IncidentState.OPEN, IncidentState.WAITING):
            yield from super().incidents(pool, state, since, until)
            return
        live = [self._incidents.incidents[name] for name in self._incidents.live]
        found = [one for one in live if (one.pool, one.state) == (pool, state) and since <= one.opened_at < until]
        yield from sorted(found, key=lambda one: (one.opened_at, one.incident_id))


class SimHeartbeats(MemoryHeartbeats):
    """Heartbeats, read off the nodes as they really are."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet

    def newest(self) -> Mapping[str, Beat]:
        return {node.node_id: self._fleet.beat_of(node) for node in self._fleet.nodes.values() if not node.is_gone}

    def want(self, beat: Beat, every_seconds: float) -> None:
        """They keep it already."""
