"""The output of a job's ranks: where it is kept, and its lines."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class LogLocation:
    """The place of a container's output: a log group, and the prefix of its streams."""

    group: str
    prefix: str
    region: str = ""


@dataclass(frozen=True)
class LogLine:
    """A line of a rank's output, and when the log received it."""

    at: datetime
    text: str


@dataclass(frozen=True)
class LogPage:
    """Lines in order, and the token to read on. A stream that does not exist yet has no lines."""

    lines: tuple[LogLine, ...]
    token: str
