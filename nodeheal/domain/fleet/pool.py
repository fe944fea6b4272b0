"""A pool: its nodes, their accelerators and its running jobs, counted; and its breaker, which only a human resets."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TypeVar

from nodeheal.contract.vocabulary import Availability, NodeState
from nodeheal.domain.fleet.node import ABSENT

Word = TypeVar("Word", NodeState, Availability)


@dataclass(frozen=True)
class AcceleratorCount:
    """The accelerators of nodes, and of these the ones whose nodes are neither held nor out of service."""

    accelerators: int = 0
    in_service: int = 0

    def __add__(self, other: "AcceleratorCount") -> "AcceleratorCount":
        return AcceleratorCount(self.accelerators + other.accelerators, self.in_service + other.in_service)


@dataclass(frozen=True)
class RunningJobs:
    """Jobs that run on all their nodes. `shown`: those that show steps; `with_findings`: those with an open finding,
    also where it is that they have shown no step yet.

    `accelerators`: that all of them take; `as_usual`: those of jobs without a finding, of which `not_shown` are of jobs
    that show no steps.
    """

    shown: int = 0
    with_findings: int = 0
    accelerators: int = 0
    as_usual: int = 0
    not_shown: int = 0

    def __add__(self, other: "RunningJobs") -> "RunningJobs":
        return RunningJobs(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


def count_job(accelerators: int, *, is_shown: bool, has_findings: bool) -> RunningJobs:
    """Count a running job. `accelerators`: that its ranks take together."""
    return RunningJobs(
        shown=int(is_shown),
        with_findings=int(has_findings),
        accelerators=accelerators,
        as_usual=0 if has_findings else accelerators,
        not_shown=0 if is_shown or has_findings else accelerators,
    )


@dataclass(frozen=True)
class Census:
    """A pool's nodes, counted by state and by whether a job can start there. `spares`: those that are not absent."""

    states: Mapping[NodeState, int] = field(default_factory=dict)
    availability: Mapping[Availability, int] = field(default_factory=dict)
    spares: int = 0
    accelerators: AcceleratorCount = field(default_factory=AcceleratorCount)

    @property
    def size(self) -> int:
        """How many nodes there are to be disrupted."""
        return sum(count for state, count in self.states.items() if state not in ABSENT)

    def __add__(self, other: "Census") -> "Census":
        return Census(
            _sum(self.states, other.states),
            _sum(self.availability, other.availability),
            self.spares + other.spares,
            self.accelerators + other.accelerators,
        )


@dataclass(frozen=True)
class Pool:
    """A pool. `version` counts writes: a save succeeds only over the version that was read."""

    name: str
    breaker_opened_at: datetime | None = None  # None: closed
    breaker_why: str = ""
    breaker_reset_at: datetime | None = None  # what failed before the last reset trips it no more
    breaker_reset_why: str = ""
    breaker_reset_by: str = ""  # a name; empty: nobody is named
    nodes: int = 0  # how many it had when they were last counted
    counted_at: datetime | None = None
    census: Census | None = None  # of then; kept only of a pool that is too large to be counted for a screen
    running_jobs: RunningJobs | None = None  # as the sweep judged them last; None: it has not yet
    jobs_counted_at: datetime | None = None
    version: int = 0

    @property
    def is_tripped(self) -> bool:
        """Whether the breaker is open: nothing more in the pool is isolated, rebooted or replaced."""
        return self.breaker_opened_at is not None

    def tripped(self, why: str, now: datetime) -> "Pool":
        """Returns the pool with its breaker open. An open breaker keeps its reason, because it was paged for that."""
        return self if self.is_tripped else replace(self, breaker_opened_at=now, breaker_why=why)

    def reset(self, why: str, now: datetime, by: str = "") -> "Pool":
        """Returns the pool with its breaker closed by a human, with the reason and the name."""
        closed = replace(self, breaker_opened_at=None, breaker_why="")
        return replace(closed, breaker_reset_at=now, breaker_reset_why=why, breaker_reset_by=by)


def _sum(first: Mapping[Word, int], second: Mapping[Word, int]) -> dict[Word, int]:
    return dict(sorted((Counter(first) + Counter(second)).items()))


@dataclass(frozen=True)
class Slots:
    """How many nodes may hold a slot of a pool's disruption budget now. As text, in tables: `2`, or `2+1` with `extra`.

    `extra`: more slots while nodes are quarantined, as `quarantine_percent` of the budget says.
    """

    budget: int
    extra: int = 0

    @property
    def total(self) -> int:
        """All slots."""
        return self.budget + self.extra

    def __str__(self) -> str:
        return f"{self.budget}+{self.extra}" if self.extra else str(self.budget)

    def taken(self, held: int) -> str:
        """How many of them are taken, in words, and why there are more than the budget has."""
        more = f", {self.extra} of them only while nodes are quarantined" if self.extra else ""
        return f"{held} of {self.total} slots are taken{more}"
