"""Defines the result of a search in a directory."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from nodeheal.contract.vocabulary import CheckpointFormat


class CheckpointBroken(Exception):
    """The checkpoint is not whole; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """A possible checkpoint. `check` raises CheckpointBroken, or returns a remark on a whole one."""

    name: str  # relative to the directory
    step: int | None
    check: Callable[[], str]


@dataclass(frozen=True)
class Distrusted:
    """The checkpoints that nobody resumes from: from a step on, written before a time (seconds since the epoch). One of
    which no step is known is among them by its time alone.
    """

    step: int
    until: float

    def holds(self, step: int | None, written_at: float) -> bool:
        """Whether such a checkpoint is among them."""
        return written_at < self.until and (step is None or step >= self.step)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint with its verdict. No problem: it is whole."""

    path: str
    step: int | None
    problem: str = ""
    remark: str = ""
    written_at: float | None = None  # seconds since the epoch, by the clock of its file system

    @property
    def is_valid(self) -> bool:
        """Whether a run can resume from it, as far as headers and sizes show."""
        return not self.problem

    @property
    def told(self) -> str:
        """Return its name, and what is wrong with it."""
        return f"{self.path.rpartition('/')[2]}: {self.problem or 'whole'}"


@dataclass(frozen=True)
class DirectoryListing:
    """A directory's checkpoints, the newest first. A problem: the directory could not be searched."""

    directory: str
    format: CheckpointFormat
    checkpoints: tuple[Checkpoint, ...] = ()
    problem: str = ""
    left_out: int = 0  # older checkpoints, which were not looked at

    @property
    def newest_valid(self) -> Checkpoint | None:
        """Return the checkpoint to resume from."""
        return next((checkpoint for checkpoint in self.checkpoints if checkpoint.is_valid), None)

    @property
    def why_incomplete(self) -> str:
        """Return that older checkpoints were not looked at; empty: all were, or a newer one is whole."""
        if not self.left_out or self.newest_valid is not None:
            return ""
        return f"of the newest {len(self.checkpoints)} none is whole, {self.left_out} older ones were not looked at"

    @property
    def skipped(self) -> tuple[Checkpoint, ...]:
        """Return those that are newer than the newest valid one; all, where none is valid."""
        newest = self.newest_valid
        return self.checkpoints[: self.checkpoints.index(newest)] if newest else self.checkpoints

    def as_json(self) -> dict[str, object]:
        """Return the form in which one process sends it to another."""
        return asdict(self)


def listing_of(fields: dict[str, object]) -> DirectoryListing:
    """Parse the form of `as_json`. Raises KeyError, TypeError, ValueError."""
    checkpoints = fields["checkpoints"]
    if not isinstance(checkpoints, list):
        raise TypeError("checkpoints is not a list")
    known = tuple(Checkpoint(**checkpoint) for checkpoint in checkpoints)
    kind, left_out = CheckpointFormat(str(fields["format"])), int(str(fields["left_out"]))
    return DirectoryListing(str(fields["directory"]), kind, known, str(fields["problem"]), left_out)
