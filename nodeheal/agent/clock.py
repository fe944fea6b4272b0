"""The only place of the agent that reads the time of day. A probe counts its own seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # also counts what a machine sleeps


@dataclass(frozen=True)
class Clock:
    """Wall time for what is said, monotonic seconds for what is waited for. Tests bring their own."""

    utc_now: Callable[[], datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
    since_boot: Callable[[], float] = _since_boot  # the same for all processes of a boot

    def zero(self) -> float:
        """When the boot began, by the time of day as it is now: another moment whenever somebody sets the clock."""
        return self.utc_now().timestamp() - self.since_boot()
