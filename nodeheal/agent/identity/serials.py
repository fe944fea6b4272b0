"""Finds the serial of the accelerator of a fault: it stays the same on another node, and its vendor asks for it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeheal.agent.transport.event import HealthEvent, NodeFact

_KEY = "serials"
# Placeholders for "none" in drivers are shorter ("0"), or have other characters ("[N/A]").
_SERIAL = re.compile(r"[A-Za-z0-9-]{5,64}")
_MOST = 64  # accelerators of one node; each has two names


class Serials:
    """The serials of this boot's accelerators, by PCI address and by UUID, including lost ones."""

    def __init__(self, saved: Mapping[str, object], boot_id: str) -> None:
        """`saved`: the result of `dump`. That of another boot is discarded: a GPU may have been replaced."""
        self._boot_id = boot_id
        kept = saved.get(_KEY)
        is_of_boot = isinstance(kept, dict) and kept.get("boot_id") == boot_id
        known = kept.get("by_name") if isinstance(kept, dict) and is_of_boot else None
        self._by_name = {str(k): str(v) for k, v in known.items()} if isinstance(known, dict) else {}

    def learn(self, called: Iterable[Mapping[str, str]]) -> None:
        """Remember the names that the checks give each accelerator."""
        for names in called:
            serial = names.get("serial", "")
            if _SERIAL.fullmatch(serial) and len(self._by_name) < 2 * _MOST:
                self._by_name |= {names[kind]: serial for kind in ("pci", "uuid") if names.get(kind)}

    def named(self, event: NodeFact) -> NodeFact:
        """Return the event with its accelerator's serial, where that is known."""
        serial = self._by_name.get(event.component or "") if isinstance(event, HealthEvent) else None
        return replace(event, component_serial=serial) if isinstance(event, HealthEvent) and serial else event

    def dump(self) -> dict[str, object]:
        """Return the state for the next run on this boot, as JSON."""
        return {_KEY: {"boot_id": self._boot_id, "by_name": dict(self._by_name)}}
