"""Folds repeats: a failing GPU can log the same message hundreds of times a second."""

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
OPEN_WINDOWS = 1024  # more different faults than a node has parts; beyond it the oldest window closes early


@dataclass(frozen=True)
class FindingOccurrence:
    """A finding and where it was found. `count`: the number of identical ones that it represents."""

    finding: Finding
    boot_id: str
    position: str
    evidence: str
    seen_at: datetime  # when it was read, UTC: a folded one is reported later than it happened
    count: int = 1
    is_history: bool = False  # of the running boot, but from before the agent first started

    @property
    def key(self) -> Key:
        """The key by which two observations are identical."""
        return _key(self.finding, self.boot_id, self.is_history)


def _key(finding: Finding, boot_id: str, is_history: bool) -> Key:
    # History has its own key: a current fault must not be folded into it.
    return (boot_id, finding.family.value, finding.code, finding.subcode or "", finding.component or "", is_history)


@dataclass
class _Window:
    """The minute after a reported observation."""

    ends_at: float
    last: FindingOccurrence | None = None  # its count is that of all that were folded


@dataclass
class Repeats:
    """Passes the first of identical observations at once, and the rest as one when its minute is over."""

    _windows: dict[Key, _Window] = field(default_factory=dict)

    def admit(self, observation: FindingOccurrence, now: float) -> list[FindingOccurrence]:
        """Return what to report now: this observation, or nothing where it was folded. `now`: monotonic seconds."""
        window = self._windows.get(observation.key)
        if window is None:
            self._windows[observation.key] = _Window(now + WINDOW_SECONDS)
            return [*self._make_room(), observation]
        folded = window.last.count if window.last else 0
        window.last = replace(observation, count=folded + observation.count)
        return []

    def is_open(self, finding: Finding, boot_id: str) -> bool:
        """Whether identical observations are being folded now; history does not count here."""
        return _key(finding, boot_id, is_history=False) in self._windows

    def expire(self, now: float) -> list[FindingOccurrence]:
        """Return what the expired windows have folded."""
        over = [key for key, window in self._windows.items() if window.ends_at <= now]
        return self._close(over)

    def dump(self) -> list[dict[str, object]]:
        """Return what is folded and not reported yet, to survive a restart."""
        return [_to_json(window.last) for window in self._windows.values() if window.last]

    def _make_room(self) -> list[FindingOccurrence]:
        return self._close([next(iter(self._windows))]) if len(self._windows) > OPEN_WINDOWS else []

    def _close(self, keys: list[Key]) -> list[FindingOccurrence]:
        closed = [self._windows.pop(key) for key in keys]
        return [window.last for window in closed if window.last]


def load(dumped: Iterable[Mapping[str, Any]]) -> list[FindingOccurrence]:
    """Parse the observations of a dump; none where another version wrote them differently."""
    try:
        return [_from_json(document) for document in dumped]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        logger.warning("the stored folded observations are not valid; they are dropped", extra={"why": error})
        return []


def _to_json(observation: FindingOccurrence) -> dict[str, object]:
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


def _from_json(saved: Mapping[str, Any]) -> FindingOccurrence:
    family, code, message = Family(saved["family"]), _word(saved["code"]), _word(saved["message"])
    component, subcode = (
        _word(word) if word is not None else None for word in (saved["component"], saved.get("subcode"))
    )
    finding = Finding(family, code, component, message, subcode)
    seen_at = datetime.fromisoformat(saved["seen_at"])
    texts = (_word(saved["boot_id"]), _word(saved["position"]), _word(saved["evidence"]))
    return FindingOccurrence(finding, *texts, seen_at, int(saved["count"]), bool(saved.get("is_history")))


def _word(saved: object) -> str:
    """Parse a text. Raises TypeError for another type, which would break later readers."""
    if not isinstance(saved, str):
        raise TypeError(f"{saved!r} is not a text")
    return saved
