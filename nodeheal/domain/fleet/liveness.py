"""Liveness of nodes: heartbeats, silence, and what independent probes say about a silent node.

Silence alone proves nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pydantic import Field

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import NodeState, Provider, Verdict
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node import ABSENT, OUT_OF_SERVICE, BootView, Node, is_past_probation
from nodeheal.domain.policy.policy_models import DAY, Breaker

# A network cut shows at each node a little later: heartbeats are out of step by up to one interval.
_QUIET_HEARTBEATS = 2
_MISSED_HEARTBEATS = 5
# Out of service, or out for good: its incident, or a human, looks after it. One that never spoke cannot fall silent.
_NOT_WATCHED = OUT_OF_SERVICE | ABSENT

# How a machine can be gone.
STOPPED = "stopped"
TERMINATED = "terminated"

# Sub-codes of heartbeat/silent.
CONFIRMED = "confirmed"
UNREACHABLE = "confirmed/unreachable"

# A machine that announces one heartbeat a year would never count as silent.
LONGEST_INTERVAL_SECONDS = 3_600.0
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Heartbeat:
    """The newest heartbeat of a machine. IAM lets only the machine named `who` write it."""

    who: str  # ROLE-ID:MACHINE-ID, or pod:CLUSTER/POD
    boot_id: str
    at: datetime
    every_seconds: float
    wanted_seconds: float | None = None  # the interval that was asked for
    trainings: Mapping[str, NodeTraining] = field(default_factory=dict)  # how runs train there, by JOB/RUN
    pod_machine: str = ""  # where a pod has written it: the machine of its node

    @property
    def role_id(self) -> str:
        """The role under which it was written."""
        return self.who.partition(":")[0]

    @property
    def machine_id(self) -> str:
        """The machine's id in its cloud: AWS names the sessions of machines after them."""
        return self.pod_machine or self.who.rpartition(":")[2]

    def is_missed(self, now: datetime) -> bool:
        """Whether several heartbeats are missing now. For people; what is done about it is the policy's."""
        return (now - self.at).total_seconds() > _MISSED_HEARTBEATS * self.interval_seconds

    @property
    def interval_seconds(self) -> float:
        """The interval that the machine reports, within reasonable bounds."""
        return min(max(self.every_seconds, 0.0), LONGEST_INTERVAL_SECONDS)

    def needs_interval(self, every_seconds: float) -> bool:
        """Tells whether the machine must still be asked for this interval."""
        asked = self.every_seconds if self.wanted_seconds is None else self.wanted_seconds
        return asked != every_seconds

    def trusted_time(self, now: datetime) -> datetime:
        """Returns when it was sent, at most `now`.

        A clock that is too far ahead is not trusted: its node would count as alive for as long as it likes.
        """
        return min(self.at, now) if self.at <= now + timedelta(seconds=LONGEST_INTERVAL_SECONDS) else NEVER


def apply_heartbeat(node: Node, heartbeat: Heartbeat | None, now: datetime) -> Node:
    """Returns the node after a heartbeat. A heartbeat of an earlier boot still shows that the machine lives."""
    if heartbeat is None or not node.has_reported:
        return node
    heartbeat_at = heartbeat.trusted_time(now)
    if node.view(heartbeat.boot_id, heartbeat_at) is BootView.PAST:
        return node.seen(heartbeat_at)
    return node.booted(heartbeat.boot_id, heartbeat_at)


class Silence(Frozen):
    """When to probe a node without heartbeats. Silence alone is reported; silence that a probe confirms is acted on."""

    enabled: bool = Field(default=True, description="false: nobody listens for silence")
    heartbeat_seconds: int = Field(
        default=60, gt=0, le=DAY, description="how often agents are to give a heartbeat; they are told of it"
    )
    missed_heartbeats: int = Field(
        default=5, ge=3, le=1_000, description="a node is silent when so many in a row are missing"
    )

    @property
    def silent_seconds(self) -> int:
        """How long a node says nothing before it is silent."""
        return self.heartbeat_seconds * self.missed_heartbeats

    def is_quiet(self, node: "NodeLiveness", now: datetime) -> bool:
        """Whether it counts among those that may have fallen silent together."""
        return self.is_missed_for(_QUIET_HEARTBEATS, node, now)

    def is_missed_for(self, missed: int, node: "NodeLiveness", now: datetime) -> bool:
        """Whether so many heartbeats are missing. A node that keeps a longer interval is given the time for it."""
        every = max(self.heartbeat_seconds, node.every_seconds)
        return node.last_seen <= now - timedelta(seconds=every * missed)


@dataclass(frozen=True)
class NodeLiveness:
    """What the sweep reads of a node first: to find silent nodes, and to count. It is eventually consistent."""

    node_id: str
    last_seen: datetime
    state: NodeState
    cluster: Cluster
    instance_id: str = ""
    boot_id: str = ""
    every_seconds: float = 0.0  # the interval that its machine says it keeps; 0: it has said nothing of the kind
    probation_until: datetime | None = None
    open_incident: str | None = None
    job_id: str | None = None
    claimed_by: str | None = None
    is_spare: bool = False
    provider: Provider | None = None
    accelerators: int = 0

    def with_heartbeat(self, heartbeat: Heartbeat | None, now: datetime) -> "NodeLiveness":
        """Returns it with the machine's own heartbeat, if there is one."""
        if heartbeat is None:
            return self
        last_seen = max(self.last_seen, heartbeat.trusted_time(now))
        return replace(self, last_seen=last_seen, every_seconds=heartbeat.interval_seconds)

    @property
    def is_watched(self) -> bool:
        """Whether its silence would be reported."""
        return self.state not in _NOT_WATCHED

    def is_past_probation(self, now: datetime) -> bool:
        """As of the node."""
        return is_past_probation(self.state, self.probation_until, now)


def liveness_of(node: Node) -> NodeLiveness:
    """Returns what the sweep would read of the node."""
    return NodeLiveness(
        node_id=node.node_id,
        last_seen=node.last_seen,
        state=node.state,
        instance_id=node.instance_id,
        boot_id=node.boot_id,
        cluster=node.cluster,
        probation_until=node.probation_until,
        open_incident=node.open_incident,
        job_id=node.job_id,
        claimed_by=node.claimed_by,
        is_spare=node.is_spare,
        provider=node.provider,
        accelerators=node.accelerators,
    )


@dataclass(frozen=True)
class ProbeAnswer:
    """The answer of one independent probe about a silent node. `is_up` None: it cannot tell."""

    witness: str
    is_up: bool | None
    text: str
    gone: str = ""  # STOPPED or TERMINATED, where there is no machine to be heard
    is_unreachable: bool = False  # no command can reach it now


@dataclass(frozen=True)
class SilentNodes:
    """The silent nodes: single ones, the newest silence first, and those that fell silent together, by wave."""

    alone: tuple[NodeLiveness, ...]
    waves: tuple[tuple[NodeLiveness, ...], ...]


def is_silent(node: NodeLiveness, rules: Silence, now: datetime) -> bool:
    """Tells whether its silence is long enough to be probed."""
    return node.is_watched and rules.is_missed_for(rules.missed_heartbeats, node, now)


def find_silent(nodes: Iterable[NodeLiveness], rules: Silence, breaker: Breaker, now: datetime) -> SilentNodes:
    """Separates single silent nodes from waves. Many nodes that stop at about the same time have one external cause.

    All nodes of a pool at once are a wave, however small the pool is. An old silence is not part of a new wave.
    """
    watched = sorted((g for g in nodes if g.is_watched), key=lambda g: (g.last_seen, g.node_id))
    quiet = [g for g in watched if rules.is_quiet(g, now)]
    times, window = [g.last_seen for g in quiet], timedelta(seconds=breaker.window_seconds)
    limit = min(breaker.limit(len(watched)), max(len(watched), 2))
    alone: list[NodeLiveness] = []
    together: list[NodeLiveness] = []
    for liveness in quiet:
        if is_silent(liveness, rules, now):
            neighbours = bisect_right(times, liveness.last_seen + window) - bisect_left(
                times, liveness.last_seen - window
            )
            (together if neighbours >= limit else alone).append(liveness)
    return SilentNodes(tuple(reversed(alone)), tuple(_waves(together, window)))


def _waves(in_time: Sequence[NodeLiveness], gap: timedelta) -> Iterator[tuple[NodeLiveness, ...]]:
    wave: list[NodeLiveness] = []
    for liveness in in_time:
        if wave and liveness.last_seen - wave[-1].last_seen > gap:
            yield tuple(wave)
            wave = []
        wave.append(liveness)
    if wave:
        yield tuple(wave)


def judge(answers: Sequence[ProbeAnswer]) -> tuple[Verdict, str, str]:
    """Returns (verdict, sub-code, text). One probe that has reached the node outweighs all that have not."""
    text = "; ".join(f"{t.witness}: {t.text}" for t in answers) or "nobody else was asked"
    up = [t.witness for t in answers if t.is_up]
    down = [t for t in answers if t.is_up is False]
    if up or not down:
        return Verdict.UNKNOWN, "", text
    return Verdict.FAILED, UNREACHABLE if any(t.is_unreachable for t in down) else CONFIRMED, text
