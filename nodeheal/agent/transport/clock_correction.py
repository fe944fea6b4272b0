"""Corrects the time of an event where the node's clock was wrong.

Nobody can set the counter of seconds since boot. So the spool keeps with each event when the boot began by the clock
that dated it (its zero), and AWS's clock gives the true start of the boot. The difference is the clock's error. See ADR
41.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.transport.aws_client import TOLERATED_SKEW
from nodeheal.agent.transport.event import Entry, NodeFact

_DATES = ("observed_at", "booted_at")  # by the node's own clock

# Folded observations are reported a minute late, and something is spooled at least once a minute.
RECENT_SECONDS = 120.0


class BootEpochs:
    """The recent clock settings, to find the one that dated an event."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = self._before = clock.zero()
        self._before_until = -math.inf

    def of(self, events: Iterable[NodeFact]) -> list[float]:
        """Return for each new event the zero whose clock places it just now, rather than a day in the past or the
        future.
        """
        zero, since_boot = self._clock.zero(), self._clock.since_boot()
        if abs(zero - self._last) >= TOLERATED_SKEW.total_seconds():
            self._before, self._before_until = self._last, since_boot + RECENT_SECONDS
        self._last = zero
        known = (zero, self._before) if since_boot < self._before_until else (zero,)
        return [_nearest(known, event.observed_at.timestamp() - since_boot) for event in events]


def _nearest(zeros: tuple[float, ...], zero: float) -> float:
    return min(zeros, key=lambda known: abs(known - zero))


def redated(entry: Entry, zero: float) -> Entry:
    """Return the event as dated by a clock whose boot began at `zero`; unchanged where the difference is negligible.
    Whole seconds, so that a second transmission reads the same.
    """
    if entry.zero is None or abs(zero - entry.zero) < TOLERATED_SKEW.total_seconds():
        return entry
    try:
        later = timedelta(seconds=round(zero - entry.zero))
        fields = json.loads(entry.detail)
        dates = {name: datetime.fromisoformat(fields[name]) + later for name in _DATES if name in fields}
    except (ValueError, TypeError, OverflowError):  # damaged by the disk; the control plane reports it
        return entry
    corrected_fields = {**fields, **{name: at.isoformat() for name, at in dates.items()}}
    detail = json.dumps(corrected_fields, ensure_ascii=False, separators=(",", ":"))
    return replace(entry, detail=detail, observed_at=dates["observed_at"].timestamp())
