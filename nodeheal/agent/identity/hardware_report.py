"""Decides when this node reports what it is made of: once a boot, when that changes, and once a day."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from nodeheal.agent.transport.event import Accelerator

_KEY = "hardware"
# A link that comes and goes is a finding of its own: here it must not become a stream of reports.
AGAIN_SECONDS = 600.0
DAILY_SECONDS = 86_400.0  # for a node that was enrolled after its last report


class HardwareReport:
    """What this boot has reported of its hardware."""

    def __init__(self, saved: Mapping[str, object], boot_id: str, now: float) -> None:
        """`saved`: the result of `dump`; that of another boot is discarded. `now`: monotonic seconds."""
        kept = saved.get(_KEY)
        is_of_boot = isinstance(kept, dict) and kept.get("boot_id") == boot_id
        self._boot_id = boot_id
        self._reported = str(kept.get("reported", "")) if isinstance(kept, dict) and is_of_boot else ""
        self._at = now
        self._compared: Sequence[Accelerator] = ()

    def to_report(self, accelerators: Sequence[Accelerator], now: float) -> Sequence[Accelerator]:
        """Return the accelerators if they are to be reported now, and count them as reported; else none. A temperature
        is no change.
        """
        if self._reported and now - self._at < AGAIN_SECONDS:
            return ()
        is_daily = now - self._at >= DAILY_SECONDS
        if not accelerators or (accelerators == self._compared and not is_daily):
            return ()
        self._compared = accelerators
        lasting = [asdict(replace(part, temperature_celsius=None)) for part in accelerators]
        digest = hashlib.sha256(json.dumps(lasting).encode()).hexdigest()
        if digest == self._reported and not is_daily:
            return ()
        self._reported, self._at = digest, now
        return accelerators

    def dump(self) -> dict[str, object]:
        """Return the state for the next run on this boot, as JSON."""
        return {_KEY: {"boot_id": self._boot_id, "reported": self._reported}}
