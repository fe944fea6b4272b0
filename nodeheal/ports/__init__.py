"""What the services need of the world. Each port says what it promises; adapters say how.

An adapter raises `NotAccepted` where the other side provably did not take a call. Anything else that goes wrong is a
surprise and is raised as it comes: the caller must then look before it acts again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from nodeheal.contract.fabric import FabricOrder
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.job_steps import JobResult
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action, IncidentState, Provider, SchedulerKind
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.liveness import Heartbeat, NodeLiveness, ProbeAnswer
from nodeheal.domain.fleet.machine import Alternative, GiveBack, Launch, Machine, Power
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.jobs.job import CheckAnswer, DirectoryLook, Job, Run
from nodeheal.domain.operation import Operation
from nodeheal.domain.recovery.decision_context import Observation
from nodeheal.domain.recovery.evidence import Diagnosis, EvidenceAsked, Upload
from nodeheal.domain.recovery.incident import History, Incident, TimelineEntry
from nodeheal.domain.recovery.timeline_fold import Fold
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.ports.scheduler import Scheduler

Clock = Callable[[], datetime]

# The newest ones: more faults than this in a window say nothing that these do not.
FAULTS_LOOKED_UP = 500


class NodeStore(Protocol):
    """Remembers nodes. A save over a version that somebody else has replaced changes nothing."""

    def get(self, node_id: str) -> Node | None:
        """The node as last written (strongly consistent), or None for one never seen."""

    def save(self, node: Node) -> bool:
        """Write the node if its version is still the stored one (0: if it does not exist). False: read it again.

        A node that is new, or not heard yet, makes its pool known to the watchlist.
        """

    def in_pool(self, pool: str) -> Sequence[Node]:
        """The pool's nodes; eventually consistent."""

    def unenrolled(self) -> Sequence[Node]:
        """Nodes that report and that nobody has enrolled: they are in no pool, and expire; eventually consistent."""

    def record(self, event: HealthEvent, job_id: str | None, note: str = "", *, in_pool: bool = True) -> None:
        """Keep a fault, and why it led to no incident where it did not. Recording it twice changes nothing.

        Not `in_pool`: only decisions about this node look at it.

        One that was kept without a reason and comes again with one is kept as both: what first took it may have broken
        off before it led anywhere, and may as well have not.
        """

    def count_report(self, node_id: str, window: str, until: datetime) -> int:
        """Count one report of the node in this window; how many there are now. Forgotten after `until`."""

    def sightings(self, node_id: str, node_since: datetime, pool: str, pool_since: datetime) -> Sequence[Observation]:
        """The node's own recorded faults (strongly consistent) and its pool's newest ones (eventually), oldest first.

        Of each, the newest FAULTS_LOOKED_UP are looked at. What led to no incident is left out: it is history, and
        speaks for nothing.
        """


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
        """Write the next turn and its entries, all or nothing. False: this turn has been taken already."""

    def finish(self, incident: Incident, node: Node | None = None) -> bool:
        """Write how it ended: state, ending, summary and time. Writing it again changes nothing.

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
    """Knows what holds nodeheal back in a pool: the slots of its disruption budget, its breaker, its pause.

    Never more nodes hold a slot than are allowed to.
    """

    def claim(self, pool: str, node_id: str, slots: int) -> bool:
        """Take one of `slots` for this node. Claiming again is True and takes no second slot."""

    def release(self, pool: str, node_id: str) -> None:
        """Give the node's slot back, if it has one."""

    def holders(self, pool: str) -> Sequence[str]:
        """The nodes that hold a slot."""

    def get(self, pool: str) -> Pool:
        """The pool's breaker and pause as last written (strongly consistent); a blank one for a pool never written."""

    def save(self, pool: Pool) -> bool:
        """Write them if the version is still the stored one (0: if there is none). False: read it again."""


@dataclass(frozen=True)
class Wait:
    """A workflow that waits for the world. It resumes when nothing is outstanding any more."""

    kind: str
    key: str
    token: str
    incident_id: str
    deadline_at: datetime
    outstanding: frozenset[str] = frozenset()
    boot_id: str = ""  # the boot that a reboot is to leave behind; the one a diagnosis is about
    command_id: str = ""  # the SSM command behind it, where there is one
    twin: tuple[str, str] | None = None  # (kind, key) of a second wait with this token: one answer ends both
    result_json: str = ""  # the StepResult or JobResult to resume with, where it is known before
    line: tuple[str, str] | None = None  # (which line, place): stands in a line, the smallest place first
    request_json: str = ""  # the StepRequest, where whoever resumes it must know more
    nonce: str = ""  # the random part of the request id that a node is given: see services.request_ids


class WaitStore(Protocol):
    """Keeps task tokens from before an action is sent until an event resumes the workflow."""

    def save(self, wait: Wait, *, renews: bool = False) -> bool:
        """Store the wait, over an older one of the same kind and key; if it renews, only over one with its token.

        False: that is gone (it has been answered), and stays gone.
        """

    def get(self, kind: str, key: str) -> Wait | None:
        """The wait, or None."""

    def strike(self, kind: str, key: str, item: str) -> Wait | None:
        """Take one item off what is outstanding; the wait as it is then. Striking twice changes nothing."""

    def drop(self, wait: Wait) -> Wait | None:
        """Forget the wait, unless a newer one (another token) has taken its place. What was stored, if it was this."""

    def in_line(self, line: str) -> Sequence[Wait]:
        """The waits that stand in this line, in order of their places; eventually consistent."""


class OperationStore(Protocol):
    """Remembers operations: from before anything is sent until a week after their deadline."""

    def get(self, owner: str, operation_id: str) -> Operation | None:
        """The operation as last written (strongly consistent), or None."""

    def save(self, operation: Operation) -> bool:
        """Write it if its version is still the stored one (0: if it does not exist). False: read it again."""

    def open_of(self, owner: str) -> Sequence[Operation]:
        """The owner's operations whose result their workflow does not have yet (strongly consistent)."""

    def queued(self, line: str) -> Sequence[Operation]:
        """The open operations that stand in this line, in order of their places; eventually consistent."""


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


class JobNotes(Protocol):
    """What there is of jobs beside their records: the list of a pool, what nodes answered, whose a directory is."""

    def in_pool(self, pool: str, *, live_only: bool = False) -> Sequence[Job]:
        """The pool's jobs, by name, or those that were not over when they were last written; eventually consistent."""

    def note_answer(self, job_id: str, answer: CheckAnswer) -> None:
        """Keep what a node answered to a check. The first answer to a request holds."""

    def answers(self, job_id: str) -> Sequence[CheckAnswer]:
        """What nodes have answered to the job's checks, of all its submissions (strongly consistent)."""

    def hold(self, directory: str, job_id: str) -> str:
        """Take the checkpoint directory for the job, with all that lies in it and above it, unless another job has one
        of these; who has it now. Taking it again is harmless. Raises NotAccepted."""

    def let_go(self, directory: str, job_id: str) -> None:
        """Give it back, if this job has it."""


# Gives leave to upload to this key, at most so many bytes, until then. Nothing is written by asking.
SignUpload = Callable[[str, int, datetime], Upload]

# Whether what is for this owner's address arrives: it is subscribed, and has confirmed that. None: nobody can tell.
HasConfirmed = Callable[[str], bool | None]


# Asks a node, by request id and until then, to look into a job's checkpoint directory; the command's id. The node
# answers with Checkpoint Found. As NodeCommands has it, one that is not known (any more) is NotFound.
FindCheckpoint = Callable[[Node, DirectoryLook, str, datetime], str]


# Asks a node to take its part in the test of the way to another one; the command's id. The node answers with
# Diagnostics Finished. As NodeCommands has it, one that is not known (any more) is NotFound.
TryWay = Callable[[Node, FabricOrder], str]


@dataclass(frozen=True)
class CommandStatus:
    """What became of a command on a node. `state`: PENDING, SUCCEEDED, FAILED, or UNKNOWN (nobody knows it).

    `exit_code`: of the script on the node; None: not known.
    """

    state: str
    output: str = ""
    exit_code: int | None = None

    @property
    def has_script_failed(self) -> bool:
        """Whether the script itself ended with this failure.

        The SSM agent and SSM make up the other codes, and they say nothing about what the script has done: -1 for one
        that never began or that a signal ended, 1 for one that was cut off by a power loss or a reboot, 137 for one
        that was killed at its time-out or cancelled.
        """
        return self.state == "FAILED" and self.exit_code not in (None, -1, 1, 137)


class NodeCommands(Protocol):
    """Makes nodes do things. Every command names the boot it is meant for and when it expires.

    A node that the other side does not know (any more) is NotFound, and nothing was sent.
    """

    def reboot(self, node: Node, expires_at: datetime) -> str:
        """Ask for a reboot of exactly this boot; the command's id. Acceptance proves nothing."""

    def diagnose(self, node: Node, ask: Diagnosis, request_id: str, expires_at: datetime) -> str:
        """Ask for diagnostics; the command's id. The node answers with a Diagnostics Finished event."""

    def collect(self, node: Node, ask: EvidenceAsked, request_id: str, expires_at: datetime) -> str:
        """Ask for evidence, to be uploaded by `expires_at`, and whether the node shows the fault; the command's id.
        The node answers with Evidence Frozen."""

    def checkpoint(self, nodes: Sequence[Node], job_id: str, expires_at: datetime) -> Sequence[str]:
        """Ask the job's tasks on these nodes to write a checkpoint now; the commands' ids. Nobody answers."""

    def look(self, node: Node, command_id: str) -> CommandStatus:
        """What became of the command."""


class Machines(Protocol):
    """Knows the machines behind EC2 nodes. What acts is sent once; `MachineRefused`: provably nothing was done."""

    def describe(self, machine_id: str) -> Machine | None:
        """The machine, and who else would repair it. None: it is gone, or on its way out."""

    def power(self, machine_id: str, order: Power) -> None:
        """Ask for a reboot, a stop or a start. A reboot is bound to no boot: who repeats it reboots twice; the others
        may be repeated. Raises MachineRefused; for a start NoCapacity, and NotAccepted while it is still stopping."""

    def launch(self, like: Machine, token: str, alternatives: Sequence[Alternative]) -> str:
        """One more machine like this one, at the first alternative that has room; its id. The same token launches once.

        Raises NoCapacity, MachineRefused.
        """

    def give_back(self, machine: Machine, how: GiveBack) -> None:
        """Give the machine up; its group, if it has one, makes another. Raises MachineRefused."""

    def launches(self, group: str, since: datetime) -> Sequence[Launch]:
        """What the group has done since then to get machines, oldest first. Raises MachineRefused for no such group."""


class Workflows(Protocol):
    """Runs the workflows."""

    def start(self, incident_id: str, node_id: str) -> None:
        """Start recover_node for the incident; a second start is a no-op."""

    def run_job(self, job_id: str, submission: int) -> None:
        """Start run_job for this submission of the job; a second start is a no-op."""

    def resume(self, token: str, result: StepResult | JobResult) -> bool:
        """Hand a waiting task its result. False: nobody waits with this token any more."""


class Delivery(StrEnum):
    """What became of a notification that was to be sent. FOLDED: it was counted, since its minute is full."""

    SENT = "SENT"
    BUSY = "BUSY"
    FOLDED = "FOLDED"


class Messenger(Protocol):
    """Tells people, and keeps what could not be read."""

    def announce(self, detail_type: str, notification: Notification) -> None:
        """Put a notification on the bus."""

    def send(self, notification: Notification, a_minute: int) -> Delivery:
        """Hand a notification to the people who are subscribed, unless so many went out in this minute, of whatever
        kind and from all functions together. BUSY: somebody else is at it with this very one."""

    def folded(self, minute: datetime) -> int:
        """How many notifications were counted in this minute instead of sent (strongly consistent)."""

    def was_sent(self, notification: Notification) -> bool:
        """Whether a notification with this key has gone out."""

    def mark_sent(self, notification: Notification) -> None:
        """Remember that it has gone out. Comes after sending: twice is better than never."""

    def quarantine(self, body: str, why: str) -> None:
        """Keep a message that cannot be read, with the reason."""


@dataclass(frozen=True)
class Place:
    """Where a look over all nodes has come to. Empty: at its beginning.

    `due`: the pool with which the next run begins to see to what waits, where the last one came to no end.
    """

    pool: str = ""
    after: str = ""
    due: str = ""


class Watchlist(Protocol):
    """What there is to look over, page by page, and where the last look ended. Lists are eventually consistent."""

    def pools(self) -> Sequence[str]:
        """Every pool that has ever had a node, in order."""

    def glimpses(self, pool: str, after: str, limit: int) -> tuple[Sequence[NodeLiveness], str]:
        """The pool's next nodes (`after` empty: its first ones), and where it goes on (empty: that was its end)."""

    def incidents(self, pool: str, state: IncidentState, since: datetime, until: datetime) -> Iterator[Incident]:
        """The pool's incidents in this state that were opened between the two, to the second, oldest first.

        Read page by page, as they are taken: who stops early has read no more. One that changes its state meanwhile may
        be seen in both states, or in neither.
        """

    def place(self) -> Place:
        """Where the last look ended."""

    def mark(self, place: Place) -> None:
        """Remember where this look ended."""


class Heartbeats(Protocol):
    """Knows the signs of life that machines write down themselves, each its own and nobody another's."""

    def newest(self) -> Mapping[str, Heartbeat]:
        """Every machine's newest one, by its id; eventually consistent. What cannot be read is left out."""

    def of(self, machine_id: str) -> Heartbeat | None:
        """One machine's newest one; eventually consistent. Looks through all: for a person, not for a loop."""

    def want(self, beat: Heartbeat, every_seconds: float) -> None:
        """Ask its machine to keep this interval. It hears of it with its next one; one that is gone, never."""


class EnrolmentTags(Protocol):
    """Knows which machines an operator has enrolled by a tag, at their launch or later."""

    def pool_of(self, node_id: str, provider: Provider) -> str | None:
        """The pool that the machine's tags name, or empty where they name none. None: it is not enrolled."""


class Witnesses(Protocol):
    """Others who would know whether a node lives: its scheduler, its command channel, its cloud."""

    def ask(self, node: Node) -> Sequence[ProbeAnswer]:
        """What each of them says now. One that knows nothing of the node cannot tell."""


@dataclass(frozen=True)
class Ports:
    """All of them, as a service is handed them. A service uses the few it names."""

    nodes: NodeStore
    incidents: IncidentStore
    attempts: AttemptLedger
    pools: PoolStore
    waits: WaitStore
    operations: OperationStore
    jobs: JobStore
    job_notes: JobNotes
    schedulers: Mapping[SchedulerKind, Scheduler]  # those that this deployment serves
    commands: NodeCommands
    machines: Machines
    workflows: Workflows
    messenger: Messenger
    watchlist: Watchlist
    heartbeats: Heartbeats
    enrolment_tags: EnrolmentTags
    witnesses: Witnesses
    sign_upload: SignUpload
    find_checkpoint: FindCheckpoint
    try_way: TryWay
    has_confirmed: HasConfirmed
    clock: Clock
    reading: ConsoleLinks = NO_LINKS

    def scheduler_of(self, node: Node) -> Scheduler:
        """The scheduler that the node has. Raises NotFound where this deployment does not serve it."""
        return self._scheduler(node.scheduler, node.node_id)

    def scheduler_for(self, job: Job) -> Scheduler:
        """The scheduler that runs the job. Raises NotFound where this deployment does not serve it."""
        return self._scheduler(job.scheduler, job.job_id)

    def _scheduler(self, kind: SchedulerKind, name: str) -> Scheduler:
        found = self.schedulers.get(kind)
        if found is None:
            raise NotFound(f"{name} has the scheduler {kind}, which this deployment does not serve")
        return found
