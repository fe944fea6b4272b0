"""What an event says of its time is put right where the node's clock was wrong.

What counts the seconds since the boot is set by nobody. So the spool keeps with each event when the boot began by the
clock that dated it (its zero), and AWS tells when it did: the difference is how wrong the date is. ADR 41.
"""

import json
from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.agent.rot import Entry
from nodeheal.agent.signed_post import TOLERATED_SKEW

_DATES = ("observed_at", "booted_at")  # which the node's own clock has told


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
