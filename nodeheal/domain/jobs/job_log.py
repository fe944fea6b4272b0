"""The output of a job's ranks: where it is kept, and how it is read back."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class LogPlace:
    """Where the output of a container is kept: a group, and the beginning of its streams' names."""

    group: str
    prefix: str
    region: str = ""

    def stream(self, container: str, task_id: str) -> str:
        """The stream of one task, as ECS names it."""
        return f"{self.prefix}/{container}/{task_id.rpartition('/')[2]}"


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
