"""A pool's breaker, which only a human resets."""

from dataclasses import dataclass, replace
from datetime import datetime


@dataclass(frozen=True)
class Pool:
    """The breaker of a pool. `version` counts writes: a save succeeds only over the version that was read."""

    name: str
    breaker_opened_at: datetime | None = None  # None: closed
    breaker_why: str = ""
    breaker_reset_at: datetime | None = None  # what failed before the last reset trips it no more
    breaker_reset_why: str = ""
    nodes: int = 0  # how many it had when they were last counted
    counted_at: datetime | None = None
    version: int = 0

    @property
    def is_tripped(self) -> bool:
        """Whether the breaker is open: nothing more in the pool is isolated, rebooted or replaced."""
        return self.breaker_opened_at is not None

    def tripped(self, why: str, now: datetime) -> "Pool":
        """Returns the pool with its breaker open. An open breaker keeps its reason, because it was paged for that."""
        return self if self.is_tripped else replace(self, breaker_opened_at=now, breaker_why=why)

    def reset(self, why: str, now: datetime) -> "Pool":
        """Returns the pool with its breaker closed by a human, with the reason."""
        return replace(self, breaker_opened_at=None, breaker_why="", breaker_reset_at=now, breaker_reset_why=why)

    @property
    def breaker_reset(self) -> tuple[str, str]:
        """Who has reset the breaker last, and why. An operator's reason begins with a name; empty: it names nobody."""
        who, _, why = self.breaker_reset_why.partition(": ")
        return (who, why) if why else ("", who)
