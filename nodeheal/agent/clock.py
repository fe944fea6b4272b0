"""The only place of the agent that reads the time of day. A probe counts its own seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    """Wall time for what is said, monotonic seconds for what is waited for. Tests bring their own."""

    utc_now: Callable[[], datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
