"""Folds a storm: a GPU in trouble says the same thing hundreds of times a second."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 60.0
Key = tuple[str, str, str, str, str, bool]
OPEN_WINDOWS = 1024  # more different faults than a node has parts; the oldest window then closes early


@dataclass(frozen=True)
class Observation:
    """A finding where it was found. `count`: how many identical ones it stands for."""

    finding: Finding
    boot_id: str
    position: str
    evidence: str
    seen_at: datetime  # when it was read, UTC: what is folded is told later than it happened
    count: int = 1
    is_history: bool = False  # of the boot that runs, but from before the agent first started

    @property
    def key(self) -> Key:
        """What makes two observations identical."""
        return _key(self.finding, self.boot_id, self.is_history)


def _key(found: Finding, boot_id: str, is_history: bool) -> Key:
    # History is a key of its own: what is said now must not wait behind it as a repeat.
    return (boot_id, found.family.value, found.code, found.subcode or "", found.component or "", is_history)


@dataclass
class _Window:
    """The minute after an observation that was told."""

    ends_at: float
    last: Observation | None = None  # carries the count of all that were folded


@dataclass
class Repeats:
    """Lets the first of identical observations through at once, and the rest as one when its minute is over."""

    _windows: dict[Key, _Window] = field(default_factory=dict)

    def admit(self, observation: Observation, now: float) -> list[Observation]:
        """What is to be reported now: this observation, or nothing because it was folded. `now`: monotonic."""
        window = self._windows.get(observation.key)
        if window is None:
            self._windows[observation.key] = _Window(now + WINDOW_SECONDS)
            return [*self._make_room(), observation]
        folded = window.last.count if window.last else 0
        window.last = replace(observation, count=folded + observation.count)
        return []

    def is_open(self, finding: Finding, boot_id: str) -> bool:
        """Whether identical observations are being folded now; those of history count for nothing here."""
        return _key(finding, boot_id, is_history=False) in self._windows

    def expire(self, now: float) -> list[Observation]:
        """What the windows that are over have folded."""
        over = [key for key, window in self._windows.items() if window.ends_at <= now]
        return self._close(over)

    def dump(self) -> list[dict[str, object]]:
        """What is folded and not reported yet, to survive the process."""
        return [_to_json(window.last) for window in self._windows.values() if window.last]

    def _make_room(self) -> list[Observation]:
        return self._close([next(iter(self._windows))]) if len(self._windows) > OPEN_WINDOWS else []

    def _close(self, keys: list[Key]) -> list[Observation]:
        closed = [self._windows.pop(key) for key in keys]
        return [window.last for window in closed if window.last]


def load(dumped: Iterable[Mapping[str, Any]]) -> list[Observation]:
    """The observations of a dump; none of one that another version has written in words of its own."""
    try:
        return [_from_json(document) for document in dumped]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        logger.warning("what was folded is not understood", extra={"why": error})
        return []


def _to_json(observation: Observation) -> dict[str, object]:
    finding = observation.finding
    return {
        "family": finding.family.value,
        "code": finding.code,
        "subcode": finding.subcode,
        "component": finding.component,
        "message": finding.message,
        "boot_id": observation.boot_id,
        "position": observation.position,
        "evidence": observation.evidence,
        "seen_at": observation.seen_at.isoformat(),
        "count": observation.count,
        "is_history": observation.is_history,
    }


def _from_json(saved: Mapping[str, Any]) -> Observation:
    family, code, message = Family(saved["family"]), _word(saved["code"]), _word(saved["message"])
    component, subcode = (
        _word(word) if word is not None else None for word in (saved["component"], saved.get("subcode"))
    )
    finding = Finding(family, code, component, message, subcode)
    seen_at = datetime.fromisoformat(saved["seen_at"])
    said = (_word(saved["boot_id"]), _word(saved["position"]), _word(saved["evidence"]))
    return Observation(finding, *said, seen_at, int(saved["count"]), bool(saved.get("is_history")))


def _word(saved: object) -> str:
    """What was written as one. Raises TypeError: taken for one it would break whoever reads it later."""
    if not isinstance(saved, str):
        raise TypeError(f"{saved!r} is no text")
    return saved
