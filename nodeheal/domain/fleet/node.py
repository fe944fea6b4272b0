"""A node as the control plane knows it, and the state changes that are allowed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto
from textwrap import shorten

from nodeheal.contract.health_event import LABELS, HealthEvent
from nodeheal.contract.vocabulary import Action, NodeState, Provider, Verdict
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.pause import Pauses

# A node keeps the boots it has had, to tell an old event from a new boot. An agent's spool holds days, not years.
BOOTS_REMEMBERED = 16
RECOVERIES_REMEMBERED = 16
# The node's item is written with each of its incidents' steps, so what it remembers is short.
STATES_REMEMBERED, STATE_REASON_CHARACTERS = 10, 200
RESOLVED_REMEMBERED = 64  # findings of one boot; of more, the oldest are news again

_MOVES: dict[NodeState, frozenset[NodeState]] = {
    NodeState.UNENROLLED: frozenset({NodeState.ENROLLED}),
    NodeState.ENROLLED: frozenset({NodeState.HEALTHY, NodeState.RETIRED}),
    NodeState.HEALTHY: frozenset({NodeState.SUSPECT, NodeState.ISOLATED, NodeState.RETIRED}),
    NodeState.SUSPECT: frozenset({NodeState.HEALTHY, NodeState.ISOLATED, NodeState.RETIRED}),
    # Back to HEALTHY: a new node that has passed its diagnostics.
    NodeState.ISOLATED: frozenset(
        {NodeState.RECOVERING, NodeState.PROBATION, NodeState.QUARANTINED, NodeState.HEALTHY}
    ),
    NodeState.RECOVERING: frozenset({NodeState.PROBATION, NodeState.QUARANTINED}),
    NodeState.PROBATION: frozenset({NodeState.HEALTHY, NodeState.SUSPECT, NodeState.ISOLATED, NodeState.RETIRED}),
    NodeState.QUARANTINED: frozenset({NodeState.HEALTHY, NodeState.PROBATION, NodeState.RETIRED}),
    NodeState.RETIRED: frozenset(),
}


# The boot of a node that has never reported one.
NO_BOOT_REPORTED = "never-heard"

# States in which nodeheal has taken the node out of service.
OUT_OF_SERVICE = frozenset({NodeState.ISOLATED, NodeState.RECOVERING, NodeState.QUARANTINED})
# Nodes of which a pool does not consist yet, or any more: a share of the pool is a share of the others.
ABSENT = frozenset({NodeState.UNENROLLED, NodeState.ENROLLED, NodeState.RETIRED})


class BootView(Enum):
    """Whether an event is of the node's current, a newer, or a past boot."""

    CURRENT = auto()
    NEWER = auto()
    PAST = auto()


@dataclass(frozen=True)
class ReportedDiagnosis:
    """The newest diagnosis that a node has reported, also one by hand.

    It is shown to people and proves nothing: only an answer to nodeheal's own request does (`passed_at`).
    """

    at: datetime
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class PastRecovery:
    """An earlier incident in which the node was taken out of service."""

    incident_id: str
    opened_at: datetime
    seconds: float | None = None  # until the node was back in service; None: it did not come back by itself
    rung: Action | None = None  # the verb that brought it back; None: not recorded
    proof_seconds: float | None = None  # that its diagnosis took


@dataclass(frozen=True)
class StateChange:
    """When a node entered a state, and the beginning of the reason."""

    at: datetime
    state: NodeState
    reason: str = ""


@dataclass(frozen=True)
class Node:
    """One accelerator node. `version` counts writes: a save succeeds only over the version that was read."""

    node_id: str
    cluster: Cluster
    pool: str
    provider: Provider
    instance_id: str
    boot_id: str
    booted_at: datetime
    last_seen: datetime
    address: str = ""
    accelerators: int = 0
    past_boots: tuple[str, ...] = ()
    state: NodeState = NodeState.HEALTHY
    state_reason: str = ""
    state_changes: tuple[StateChange, ...] = ()  # newest first
    probation_until: datetime | None = None
    drained_by_us: bool = False
    open_incident: str | None = None
    job_id: str | None = None
    job_run: int = 0  # the run of that job whose rank was started here
    # fingerprint of a fault -> the incident that dealt with it on this boot; what repeats is history, not news
    resolved_faults: dict[str, str] = field(default_factory=dict)
    agent_version: str = ""
    agent_since: datetime | None = None  # when this version was first heard
    # when it last passed its diagnostics, or was given back by a human; what it reported before is history
    healthy_since: datetime | None = None
    passed_at: datetime | None = None  # when it last passed its diagnostics
    last_diagnosis: ReportedDiagnosis | None = None
    diagnostic_baseline: dict[str, float] = field(default_factory=dict)  # what its last good diagnosis measured
    recoveries: tuple[PastRecovery, ...] = ()  # newest first
    claimed_by: str | None = None  # the job that is about to start here, while its nodes are checked
    is_spare: bool = False  # an operator keeps it free, to stand in for another node
    rack: str = ""  # where an operator says that it stands
    machine: str = ""  # the firmware's product name, as its agent reports it; on EC2 the instance type
    # topic of a foreign signal -> the newest version received; an older one that comes later is history
    signal_versions: dict[str, int] = field(default_factory=dict)
    version: int = 0

    def has_rank_of(self, job_id: str, run: int) -> bool:
        """Whether a rank of this run was started here, and the node has not been taken from the job since."""
        return (self.job_id, self.job_run) == (job_id, run)

    def is_of_job(self, job_id: str) -> bool:
        """Whether it is claimed for the job, or has a rank of it: else the job has no say about it."""
        return job_id in (self.claimed_by, self.job_id)

    @property
    def has_reported(self) -> bool:
        """Whether its agent has ever reported."""
        return self.state not in (NodeState.UNENROLLED, NodeState.ENROLLED)

    def with_first_report(self, reported: "Node") -> "Node":
        """Returns the announced node with what its agent has `reported` first. What the operator stated stays."""
        return replace(
            reported,
            pool=self.pool,
            cluster=self.cluster,
            provider=self.provider,
            state_reason=self.state_reason,
            state_changes=(StateChange(reported.last_seen, reported.state, "first report"),),
            accelerators=self.accelerators or reported.accelerators,
            is_spare=self.is_spare,
            rack=self.rack,
            signal_versions=self.signal_versions,
            version=self.version,
        )

    def with_resolved_faults(self, resolved: Mapping[str, str]) -> "Node":
        """Returns the node after an incident has resolved these findings. Ids of incidents begin with their time."""
        newest = sorted({**self.resolved_faults, **resolved}.items(), key=lambda pair: pair[1])[-RESOLVED_REMEMBERED:]
        return replace(self, resolved_faults=dict(newest))

    def entered(self, state: NodeState, reason: str, at: datetime) -> "Node":
        """Returns the node in this state, and records when it came to it. The same state is no change."""
        changes = self.state_changes
        if state is not self.state:
            change = StateChange(at, state, shorten(reason, STATE_REASON_CHARACTERS, placeholder=" ..."))
            changes = (change, *changes)[:STATES_REMEMBERED]
        return replace(self, state=state, state_reason=reason, state_changes=changes)

    def with_rack(self, event: HealthEvent) -> HealthEvent:
        """Returns the event with the rack that an operator has stated, so that a rack's common failure is found."""
        if not self.rack or ("rack" not in event.labels and len(event.labels) >= LABELS):
            return event
        return event.model_copy(update={"labels": {**event.labels, "rack": self.rack}})

    def view(self, boot_id: str, observed_at: datetime) -> BootView:
        """Compares an event's boot with the node's. An unknown old boot is PAST."""
        if boot_id == self.boot_id:
            return BootView.CURRENT
        if boot_id in self.past_boots or observed_at <= self.booted_at:
            return BootView.PAST
        return BootView.NEWER

    def booted(self, boot_id: str, at: datetime, address: str = "", accelerators: int = 0) -> "Node":
        """Returns the node after it came up as `boot_id`. Faults that were resolved on the old boot are open again."""
        if boot_id == self.boot_id:
            return replace(
                self,
                last_seen=max(at, self.last_seen),
                address=address or self.address,
                accelerators=accelerators or self.accelerators,
            )
        return replace(
            self,
            boot_id=boot_id,
            booted_at=at,
            last_seen=max(at, self.last_seen),
            past_boots=(self.boot_id, *self.past_boots)[:BOOTS_REMEMBERED],
            address=address or self.address,
            accelerators=accelerators or self.accelerators,
            resolved_faults={},
        )

    def seen(self, at: datetime) -> "Node":
        """Returns the node after a heartbeat at this time."""
        return replace(self, last_seen=max(at, self.last_seen))

    def says(self, event: HealthEvent) -> HealthEvent:
        """Returns the event with the node's recorded place. No event decides to which pool its node belongs."""
        place = {"cluster": self.cluster.name, "pool": self.pool, "provider": self.provider}
        return event.model_copy(update=place)

    def with_agent_version(self, agent_version: str, at: datetime) -> "Node":
        """Returns the node with its agent's version, and since when it runs."""
        if agent_version == self.agent_version or (self.agent_since is not None and at < self.agent_since):
            return self
        return replace(self, agent_version=agent_version, agent_since=at)

    def with_recovery(self, past: PastRecovery) -> "Node":
        """Returns the node with one more recovery. The same incident counts once."""
        others = tuple(known for known in self.recoveries if known.incident_id != past.incident_id)
        return replace(self, recoveries=(past, *others)[:RECOVERIES_REMEMBERED])

    def is_available(self, now: datetime, pauses: Pauses) -> bool:
        """Tells whether it could take another node's place.

        It must be in service, out of probation, not paused, and have no open incident and no job.
        """
        in_service = self.state is NodeState.HEALTHY or self.is_past_probation(now)
        has_work = self.job_id is not None or self.claimed_by is not None
        is_free = self.open_incident is None and not has_work
        return in_service and is_free and pauses.of_node(self.node_id, now) is None

    def is_past_probation(self, now: datetime) -> bool:
        """Tells whether its probation has ended without a fault. It counts as healthy again then."""
        return is_past_probation(self.state, self.probation_until, now)

    def as_shown(self, now: datetime) -> "Node":
        """Returns the node as people see it: healthy once its probation is over; before, the reason says until when.

        Of one in service that has an open incident, the reason says that it gets no new work.
        """
        if self.is_past_probation(now):
            return replace(self, state=NodeState.HEALTHY).as_shown(now)
        if self.state is NodeState.HEALTHY and self.open_incident is not None:
            return replace(self, state_reason="it gets no new work while its incident is open")
        if self.state is NodeState.PROBATION and self.probation_until is not None:
            return replace(
                self, state_reason=f"on probation until {self.probation_until:%H:%M} UTC; {self.state_reason}"
            )
        return self


def is_past_probation(state: NodeState, until: datetime | None, now: datetime) -> bool:
    """Tells whether a node in this state, on probation until then, has passed it."""
    return state is NodeState.PROBATION and until is not None and until <= now


def may_move(current: NodeState, target: NodeState) -> bool:
    """Tells whether the state change is allowed.

    Staying is always allowed, because steps are repeated after a crash.
    """
    return target is current or target in _MOVES[current]


def moved(node: Node, target: NodeState, reason: str, at: datetime) -> Node:
    """Returns the node in its new state. Raises ValueError for a state change that is not allowed."""
    if not may_move(node.state, target):
        raise ValueError(f"{node.node_id} cannot go from {node.state} to {target}")
    return node.entered(target, reason, at)
