"""Heartbeats: what each says about its node, when a node is silent, and what others say about it then.

Silence alone proves nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import Field

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.vocabulary import NodeState, Verdict
from nodeheal.domain.fleet.node import ABSENT, OUT_OF_SERVICE, BootView, Node
from nodeheal.domain.policy.policy_models import DAY, Breaker

# A cut takes a moment to be heard from every node: their heartbeats are out of step by up to one interval.
_QUIET_BEATS = 2
# Out of service, or out for good: its incident, or a human, looks after it. One that never spoke cannot fall silent.
_NOT_WATCHED = OUT_OF_SERVICE | ABSENT

# How a machine can be gone.
STOPPED = "stopped"
TERMINATED = "terminated"

# Sub-codes of heartbeat/silent.
CONFIRMED = "confirmed"
UNREACHABLE = "confirmed/unreachable"

# A machine that says that it will be heard once a year would never be missed.
LONGEST_SECONDS = 3_600.0
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Beat:
    """The newest one of a machine. Nobody else can have written it: IAM holds the writer to the item named `who`."""

    who: str  # ROLE-ID:MACHINE-ID
    boot_id: str
    at: datetime
    every_seconds: float
    wanted_seconds: float | None = None  # the interval that was asked for

    @property
    def role_id(self) -> str:
        """The role under which it was written."""
        return self.who.partition(":")[0]

    @property
    def machine_id(self) -> str:
        """The machine, by its cloud's own id: AWS names the sessions of machines after them."""
        return self.who.rpartition(":")[2]

    @property
    def believed_seconds(self) -> float:
        """The interval that it says it keeps, within reason."""
        return min(max(self.every_seconds, 0.0), LONGEST_SECONDS)

    def must_hear_of(self, every_seconds: float) -> bool:
        """Whether its machine has not been asked for this interval yet."""
        told = self.every_seconds if self.wanted_seconds is None else self.wanted_seconds
        return told != every_seconds

    def seen_by(self, now: datetime) -> datetime:
        """When it was given: a clock that is ahead tells of no future. One that is further ahead than a machine may be
        silent tells nothing: what it says once would be true for as long as it likes."""
        return min(self.at, now) if self.at <= now + timedelta(seconds=LONGEST_SECONDS) else NEVER


def after(node: Node, beat: Beat | None, now: datetime) -> Node:
    """The node as its machine's sign of life shows it. One of an earlier boot is a sign of life all the same."""
    if beat is None or not node.is_heard:
        return node
    seen = beat.seen_by(now)
    if node.view(beat.boot_id, seen) is BootView.PAST:
        return node.seen(seen)
    return node.booted(beat.boot_id, seen)


class Silence(Frozen):
    """When a node that gives no sign of life is looked at. Silence alone is told; what others confirm is acted on."""

    enabled: bool = Field(default=True, description="false: nobody listens for silence")
    heartbeat_seconds: int = Field(
        default=60, gt=0, le=DAY, description="how often agents are to give a sign of life; they are told of it"
    )
    missed_heartbeats: int = Field(
        default=5, ge=3, le=1_000, description="a node is silent when so many in a row are missing"
    )

    @property
    def silent_seconds(self) -> int:
        """How long a node says nothing before it is silent."""
        return self.heartbeat_seconds * self.missed_heartbeats

    def is_quiet(self, glimpse: "Glimpse", now: datetime) -> bool:
        """Whether it counts among those that may have fallen silent together."""
        return self.is_missed_for(_QUIET_BEATS, glimpse, now)

    def is_missed_for(self, beats: int, glimpse: "Glimpse", now: datetime) -> bool:
        """Whether so many signs of life are missing. A node that keeps a longer interval is given the time for it."""
        every = max(self.heartbeat_seconds, glimpse.every_seconds)
        return glimpse.last_seen <= now - timedelta(seconds=every * beats)


@dataclass(frozen=True)
class Glimpse:
    """What the sweep sees of a node at first; eventually consistent."""

    node_id: str
    last_seen: datetime
    state: NodeState
    instance_id: str = ""
    boot_id: str = ""
    every_seconds: float = 0.0  # the interval that its machine says it keeps; 0: it has said nothing of the kind

    def heard(self, beat: Beat | None, now: datetime) -> "Glimpse":
        """With its machine's own sign of life, if there is one."""
        if beat is None:
            return self
        seen = max(self.last_seen, beat.seen_by(now))  # spelled out: a sweep does this for every node
        return Glimpse(self.node_id, seen, self.state, self.instance_id, self.boot_id, beat.believed_seconds)

    @property
    def is_watched(self) -> bool:
        """Whether its silence would be news."""
        return self.state not in _NOT_WATCHED


def glimpse_of(node: Node) -> Glimpse:
    """What the sweep would see of the node."""
    return Glimpse(node.node_id, node.last_seen, node.state, node.instance_id, node.boot_id)


@dataclass(frozen=True)
class Answer:
    """What one witness says about a silent node. `is_up` None: it cannot tell."""

    witness: str
    is_up: bool | None
    text: str
    gone: str = ""  # STOPPED or TERMINATED, where there is no machine to be heard
    is_unreachable: bool = False  # no command can reach it now


@dataclass(frozen=True)
class Silent:
    """Who says nothing: each by itself, the newest silences first, and those that fell silent together, by wave."""

    alone: tuple[Glimpse, ...]
    waves: tuple[tuple[Glimpse, ...], ...]


def is_silent(glimpse: Glimpse, rules: Silence, now: datetime) -> bool:
    """Whether its silence is long enough to be looked at."""
    return glimpse.is_watched and rules.is_missed_for(rules.missed_heartbeats, glimpse, now)


def find_silent(glimpses: Iterable[Glimpse], rules: Silence, breaker: Breaker, now: datetime) -> Silent:
    """Tell the silent nodes apart: so many that stopped at about the same time have one cause, and it is not in them.

    All of a pool at once is too many, however small the pool. An old silence is no part of a new wave.
    """
    watched = sorted((g for g in glimpses if g.is_watched), key=lambda g: (g.last_seen, g.node_id))
    quiet = [g for g in watched if rules.is_quiet(g, now)]
    times, window = [g.last_seen for g in quiet], timedelta(seconds=breaker.window_seconds)
    limit = min(breaker.limit(len(watched)), max(len(watched), 2))
    alone: list[Glimpse] = []
    together: list[Glimpse] = []
    for one in quiet:
        if is_silent(one, rules, now):
            company = bisect_right(times, one.last_seen + window) - bisect_left(times, one.last_seen - window)
            (together if company >= limit else alone).append(one)
    return Silent(tuple(reversed(alone)), tuple(_waves(together, window)))


def _waves(in_time: Sequence[Glimpse], gap: timedelta) -> Iterator[tuple[Glimpse, ...]]:
    wave: list[Glimpse] = []
    for one in in_time:
        if wave and one.last_seen - wave[-1].last_seen > gap:
            yield tuple(wave)
            wave = []
        wave.append(one)
    if wave:
        yield tuple(wave)


def judge(answers: Sequence[Answer]) -> tuple[Verdict, str, str]:
    """(verdict, sub-code, in words). One witness who has heard the node outweighs all who have not."""
    told = "; ".join(f"{t.witness}: {t.text}" for t in answers) or "nobody else was asked"
    up = [t.witness for t in answers if t.is_up]
    down = [t for t in answers if t.is_up is False]
    if up or not down:
        return Verdict.UNKNOWN, "", told
    return Verdict.FAILED, UNREACHABLE if any(t.is_unreachable for t in down) else CONFIRMED, told
