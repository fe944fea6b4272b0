"""The output of a job's ranks, as it is read back."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class LogLine:
    """What a rank has written, and when the log had it."""

    at: datetime
    text: str


@dataclass(frozen=True)
class Page:
    """Lines in order, and from where to read on. A stream that is not there yet has none."""

    lines: tuple[LogLine, ...]
    token: str
