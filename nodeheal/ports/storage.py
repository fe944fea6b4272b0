"""The stores: nodes, incidents, attempts, pools, pauses, operations, jobs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from nodeheal.contract.health_event import HealthEvent, NodeHardwareReported
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action, IncidentState
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.node_order import ClusterOrders
from nodeheal.domain.fleet.pause import Pause, Pauses
from nodeheal.domain.fleet.pool import Census, Pool
from nodeheal.domain.jobs.job import CheckAnswer, Hang, Job, Run
from nodeheal.domain.jobs.job_findings import NotedFinding
from nodeheal.domain.operation import Operation
from nodeheal.domain.records_epoch import Epoch
from nodeheal.domain.recovery.decision_context import Observation
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.domain.recovery.timeline import TimelineEntry
from nodeheal.domain.recovery.timeline_fold import Fold

# The newest ones: more faults than this in a window say nothing that these do not.
FAULTS_LOOKED_UP = 500


class NodeStore(Protocol):
    """Remembers nodes. A save over a version that somebody else has replaced changes nothing."""

    def get(self, node_id: str) -> Node | None:
        """The node as last written (strongly consistent), or None for one never seen."""

    def save(self, node: Node) -> bool:
        """Write the node if its version is still the stored one (0: if it does not exist). False: read it again.

        A node that is new, or not heard yet, makes its pool known to the fleet index.
        """

    def in_pool(self, pool: str) -> Sequence[Node]:
        """The pool's nodes, by id; eventually consistent."""

    def unenrolled(self) -> Sequence[Node]:
        """Nodes that report and are not enrolled: they are in no pool, and expire; eventually consistent."""

    def record(self, event: HealthEvent, job_id: str | None, note: str = "", *, in_pool: bool = True) -> None:
        """Keep a fault, and why it led to no incident where it did not. Recording it twice changes nothing.

        Not `in_pool`: only decisions about this node look at it.

        One that was kept without a reason and comes again with one is kept as both: what first took it may have broken
        off before it led anywhere, and may as well have not.
        """

    def count_report(self, node_id: str, window: str, until: datetime) -> int:
        """Count one report of the node in this window; how many there are now. Forgotten after `until`."""

    def observations(
        self, node_id: str, node_since: datetime, pool: str, pool_since: datetime
    ) -> Sequence[Observation]:
        """The node's own recorded faults (strongly consistent) and its pool's newest ones (eventually), oldest first.

        Of each, the newest FAULTS_LOOKED_UP are looked at. What led to no incident is left out: it is history, and
        speaks for nothing.
        """


class HardwareStore(Protocol):
    """Remembers what nodes are made of."""

    def save(self, report: NodeHardwareReported) -> None:
        """Keep the report of its node; one that is not newer than the kept one changes nothing."""

    def of(self, node_id: str) -> NodeHardwareReported | None:
        """The kept report of the node, or None for one that has sent none."""


class IncidentStore(Protocol):
    """Remembers incidents and their story. Entries are only ever added, and folded where there are too many."""

    def open(self, incident: Incident, node: Node) -> bool:
        """Write the incident, its root event's entry and `node` (which must name it), all or nothing.

        False: it exists, or the node has changed since it was read.
        """

    def append(self, incident_id: str, entry: TimelineEntry) -> bool:
        """Add one entry. False: an entry with this id is there already, and nothing changed."""

    def fold(self, incident_id: str, fold: Fold) -> bool:
        """Remove and count entries, all or nothing. False: one of these entries has changed, and nothing is written."""

    def incident(self, incident_id: str) -> Incident:
        """The incident without its story, which may be a megabyte (strongly consistent). Raises NotFound."""

    def history(self, incident_id: str) -> History:
        """The incident with its events and turns in order (strongly consistent). Raises NotFound."""

    def advance(self, incident: Incident, entries: Sequence[TimelineEntry]) -> bool:
        """Write the next turn and its entries, all or nothing.

        False: this turn has been taken already, or the incident was handed to a human.
        """

    def finish(self, incident: Incident, node: Node | None = None) -> bool:
        """Write how it ended: state, ending, summary, time, whether it only restarted a job.

        The same again changes nothing.

        With `node`, both or neither. False: the node has changed since it was read.
        """


class AttemptLedger(Protocol):
    """Counts recovery attempts. Reserving is the only way to spend one; what is denied spends nothing."""

    def reserve(self, scope: str, attempt_id: str, limit: AttemptLimit) -> tuple[bool, int]:
        """(granted, attempts spent in the window, this one included). The same attempt_id spends once."""

    def refund(self, scope: str, attempt_id: str, limit: AttemptLimit) -> None:
        """Give back an attempt after which provably nothing was done."""

    def spent(self, scope: str, *limits: AttemptLimit) -> Mapping[Action, int]:
        """How many attempts the window of each of these limits holds now, by its group."""


class PoolStore(Protocol):
    """Knows what holds nodeheal back in a pool: the slots of its disruption budget, and its breaker.

    Never more nodes hold a slot than are allowed to.
    """

    def claim(self, pool: str, node_id: str, slots: int) -> bool:
        """Take one of `slots` for this node. Claiming again is True and takes no second slot."""

    def release(self, pool: str, node_id: str) -> None:
        """Give the node's slot back, if it has one."""

    def holders(self, pool: str) -> Sequence[str]:
        """The nodes that hold a slot."""

    def get(self, pool: str) -> Pool:
        """The pool's breaker as last written (strongly consistent); a blank one for a pool never written."""

    def save(self, pool: Pool) -> bool:
        """Write it if its version is still the stored one, 0 where nothing is stored. False: somebody wrote since."""


class PauseStore(Protocol):
    """Remembers what persons have paused. They write it directly: an item that cannot be read is a pause without end.

    A pause is forgotten some days after its end.
    """

    def read(self) -> Pauses:
        """All of them (strongly consistent), also those that are over."""

    def save(self, key: str, pause: Pause) -> None:
        """Write the pause of a node or a pool over the one before, whatever that was. `key`: its sort key."""


class OperationStore(Protocol):
    """Remembers operations: from before anything is sent until two days after their end."""

    def get(self, owner: str, operation_id: str) -> Operation | None:
        """The operation as last written (strongly consistent), or None."""

    def save(self, operation: Operation) -> bool:
        """Write it if its version is still the stored one (0: if it does not exist). False: read it again."""

    def open_of(self, owner: str) -> Sequence[Operation]:
        """The owner's operations whose result their workflow does not have yet (strongly consistent)."""

    def queued(self, line: str) -> Sequence[Operation]:
        """The open operations that stand in this line, in order of their places; eventually consistent."""

    def behind(self, operation: Operation, most: int) -> Sequence[tuple[str, str]]:
        """Owner and id of the next ones, at most so many, that stand behind it in its line; eventually consistent.

        Some of them may be over.
        """


class JobStore(Protocol):
    """Remembers training jobs and their runs."""

    def get(self, job_id: str) -> Job | None:
        """The job, or None."""

    def save(self, job: Job) -> bool:
        """Write the job if its version is still the stored one (0: if it does not exist)."""

    def get_run(self, job_id: str, number: int) -> Run | None:
        """One run, or None."""

    def save_run(self, run: Run) -> bool:
        """Write the run if its version is still the stored one (0: if it does not exist)."""

    def runs(self, job_id: str) -> Sequence[Run]:
        """Every run of the job, in order."""

    def after(self, pool: str, job_id: str, *, is_over: bool, page_size: int | None = None) -> Iterator[Job]:
        """The pool's jobs that are over, or those that are not, whose names come after this one, by name; eventually
        consistent.

        `page_size` of them are read at once, as they are consumed.
        """


class JobNotes(Protocol):
    """What there is of jobs beside their records: a pool's list, what nodes answered, hangs, whose a directory is."""

    def in_pool(self, pool: str, *, live_only: bool = False) -> Sequence[Job]:
        """The pool's jobs, by name, or those that were not over when they were last written; eventually consistent."""

    def note_answer(self, job_id: str, answer: CheckAnswer) -> None:
        """Keep what a node answered to a check. The first answer to a request holds."""

    def answers(self, job_id: str) -> Sequence[CheckAnswer]:
        """What nodes have answered to the job's checks, of all its submissions (strongly consistent)."""

    def note_hang(self, hang: Hang) -> None:
        """Remember for a day which incident the hang of a run has. The newest one holds."""

    def hang_of(self, run: str) -> Hang | None:
        """The newest hang of this run (strongly consistent), or None."""

    def hold(self, directory: str, job_id: str) -> str:
        """Take the checkpoint directory for the job, with all that lies in it and above it, unless another job has one
        of these; who has it now. Taking it again is harmless. Raises NotAccepted."""

    def release_directory(self, directory: str, job_id: str) -> None:
        """Release the directory, if this job has it."""


class JobFindings(Protocol):
    """What is, or was, wrong with how runs train."""

    def note(self, finding: NotedFinding) -> None:
        """Write it down; of a run and a kind the newest holds."""

    def of(self, job_id: str, run: int) -> Sequence[NotedFinding]:
        """What is written down of this run, by kind (strongly consistent)."""


@dataclass(frozen=True)
class SweepCursor:
    """Where a look over all nodes has come to. Empty: at its beginning.

    `counted`: the nodes of `pool` up to `after`; None: not all of them were counted.

    `due`: the pool with which the next run begins to see to what waits, where the last one came to no end.

    `orders`: those that stood at the last look at each cluster whose scheduler takes them.
    """

    pool: str = ""
    after: str = ""
    due: str = ""
    counted: Census | None = None
    orders: tuple[ClusterOrders, ...] = ()


class FleetIndex(Protocol):
    """What there is to look over, page by page, and where the last look ended. Lists are eventually consistent."""

    def pools(self) -> Sequence[str]:
        """Every pool that has ever had a node, in order."""

    def liveness_page(self, pool: str, after: str, limit: int) -> tuple[Sequence[NodeLiveness], str]:
        """The pool's next nodes by id (`after` empty: its first ones), and the id after which it goes on (empty: that
        was its end).
        """

    def nodes_after(self, pool: str, node_id: str = "", page_size: int | None = None) -> Iterator[Node]:
        """The pool's nodes whose ids come after this one, by id.

        `page_size` of them are read at once, as they are consumed, so a caller that stops early reads no more.
        """

    def incidents(self, pool: str, state: IncidentState, since: datetime, until: datetime) -> Iterator[Incident]:
        """The pool's incidents in this state that were opened between the two, to the second, oldest first.

        Pages are read as they are consumed, so a caller that stops early reads no more. An incident that changes its
        state meanwhile may be seen in both states, or in neither.
        """

    def newest_incidents(
        self, pool: str, state: IncidentState, since: datetime, until: datetime, page_size: int | None = None
    ) -> Iterator[Incident]:
        """The same incidents, the newest first, in the reverse of `Incident.place`. `page_size` are read at once."""

    def cursor(self) -> SweepCursor:
        """Where the last look ended."""

    def save_cursor(self, cursor: SweepCursor) -> None:
        """Remember where this look ended."""


class RecordsEpoch(Protocol):
    """Knows whether the table is an older copy of itself, by a mark in it and one outside it."""

    def read(self) -> Epoch:
        """Both marks (strongly consistent)."""

    def renew(self, known: Epoch, at: datetime) -> bool:
        """Set both marks, first that of the table. False: it is not the `known` one any more, and none was set."""
