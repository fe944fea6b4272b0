"""Which accelerator a fault is of, by its serial: it outlives the node, and its vendor asks for it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeheal.agent.event import HealthEvent, NodeFact

_KEY = "serials"
# What stands for "none" in drivers is shorter ("0"), or has other characters ("[N/A]").
_SERIAL = re.compile(r"[A-Za-z0-9-]{5,64}")
_MOST = 64  # accelerators of one node; each has two names


class Serials:
    """The serials of this boot's accelerators, by PCI address and by UUID, also of those that are lost by now."""

    def __init__(self, saved: Mapping[str, object], boot_id: str) -> None:
        """`saved`: as `dump` returned it. That of another boot is forgotten: a GPU may have been exchanged."""
        self._boot_id = boot_id
        kept = saved.get(_KEY)
        is_of_boot = isinstance(kept, dict) and kept.get("boot_id") == boot_id
        known = kept.get("by_name") if isinstance(kept, dict) and is_of_boot else None
        self._by_name = {str(k): str(v) for k, v in known.items()} if isinstance(known, dict) else {}

    def learn(self, called: Iterable[Mapping[str, str]]) -> None:
        """Remember what the checks call each accelerator."""
        for names in called:
            serial = names.get("serial", "")
            if _SERIAL.fullmatch(serial) and len(self._by_name) < 2 * _MOST:
                self._by_name |= {names[kind]: serial for kind in ("pci", "uuid") if names.get(kind)}

    def named(self, event: NodeFact) -> NodeFact:
        """The event with its accelerator's serial, where that is known."""
        serial = self._by_name.get(event.component or "") if isinstance(event, HealthEvent) else None
        return replace(event, component_serial=serial) if isinstance(event, HealthEvent) and serial else event

    def dump(self) -> dict[str, object]:
        """What the next run on this boot must know. JSON."""
        return {_KEY: {"boot_id": self._boot_id, "by_name": dict(self._by_name)}}
