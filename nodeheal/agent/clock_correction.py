"""What an event says of its time is put right where the node's clock was wrong.

What counts the seconds since the boot is set by nobody. So the spool keeps with each event when the boot began by the
clock that dated it (its zero), and AWS tells when it did: the difference is how wrong the date is. ADR 41.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.agent.aws_client import TOLERATED_SKEW
from nodeheal.agent.clock import Clock
from nodeheal.agent.event import Entry, NodeFact

_DATES = ("observed_at", "booted_at")  # which the node's own clock has told

# What is folded is told a minute after it was seen, and something is spooled at least once a minute.
RECENT_SECONDS = 120.0


class BootEpochs:
    """By which clock an event was dated: as it is set now, or as it was moments ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = self._before = clock.zero()
        self._before_until = -math.inf

    def of(self, events: Iterable[NodeFact]) -> list[float]:
        """Of each, which is new: the zero by which it was seen just now, and not a day ago or in a day."""
        zero, since_boot = self._clock.zero(), self._clock.since_boot()
        if abs(zero - self._last) >= TOLERATED_SKEW.total_seconds():
            self._before, self._before_until = self._last, since_boot + RECENT_SECONDS
        self._last = zero
        known = (zero, self._before) if since_boot < self._before_until else (zero,)
        return [_nearest(known, event.observed_at.timestamp() - since_boot) for event in events]


def _nearest(zeros: tuple[float, ...], zero: float) -> float:
    return min(zeros, key=lambda known: abs(known - zero))


def redated(entry: Entry, zero: float) -> Entry:
    """The event as a clock would have dated it by which the boot began at `zero`; as it is where that is all but the
    same. Whole seconds: what is sent twice should read the same.
    """
    if entry.zero is None or abs(zero - entry.zero) < TOLERATED_SKEW.total_seconds():
        return entry
    try:
        later = timedelta(seconds=round(zero - entry.zero))
        said = json.loads(entry.detail)
        dates = {name: datetime.fromisoformat(said[name]) + later for name in _DATES if name in said}
    except (ValueError, TypeError, OverflowError):  # the disk has spoilt it; the control plane says so
        return entry
    told = {**said, **{name: at.isoformat() for name, at in dates.items()}}
    detail = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return replace(entry, detail=detail, observed_at=dates["observed_at"].timestamp())
