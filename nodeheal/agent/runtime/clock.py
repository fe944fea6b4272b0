"""Reads the time of day, in one place for the whole agent. A probe measures its own seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # also counts while a machine sleeps


@dataclass(frozen=True)
class Clock:
    """Wall time for timestamps, monotonic seconds for waits. Tests substitute their own."""

    utc_now: Callable[[], datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
    since_boot: Callable[[], float] = _since_boot  # the same for all processes of a boot

    def zero(self) -> float:
        """Return when the boot began, by the current time of day: it changes whenever the clock is set."""
        return self.utc_now().timestamp() - self.since_boot()
