"""A sign of life, as the machine itself has written it down, and what it says about the machine's node."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nodeheal.domain.node import BootView, Node

# A machine that says that it will be heard once a year would never be missed.
LONGEST_SECONDS = 3_600.0
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Beat:
    """The newest one of a machine. Nobody else can have written it: IAM holds the writer to the item named `who`."""

    who: str  # ROLE-ID:MACHINE-ID
    boot_id: str
    at: datetime
    every_seconds: float
    wanted_seconds: float | None = None  # the interval that was asked for

    @property
    def role_id(self) -> str:
        """The role under which it was written."""
        return self.who.partition(":")[0]

    @property
    def machine_id(self) -> str:
        """The machine, by its cloud's own id: AWS names the sessions of machines after them."""
        return self.who.rpartition(":")[2]

    @property
    def believed_seconds(self) -> float:
        """The interval that it says it keeps, within reason."""
        return min(max(self.every_seconds, 0.0), LONGEST_SECONDS)

    def must_hear_of(self, every_seconds: float) -> bool:
        """Whether its machine has not been asked for this interval yet."""
        told = self.every_seconds if self.wanted_seconds is None else self.wanted_seconds
        return told != every_seconds

    def seen_by(self, now: datetime) -> datetime:
        """When it was given: a clock that is ahead tells of no future. One that is further ahead than a machine may be
        silent tells nothing: what it says once would be true for as long as it likes."""
        return min(self.at, now) if self.at <= now + timedelta(seconds=LONGEST_SECONDS) else NEVER


def after(node: Node, beat: Beat | None, now: datetime) -> Node:
    """The node as its machine's sign of life shows it. One of an earlier boot is a sign of life all the same."""
    if beat is None or not node.is_heard:
        return node
    seen = beat.seen_by(now)
    if node.view(beat.boot_id, seen) is BootView.PAST:
        return node.seen(seen)
    return node.booted(beat.boot_id, seen)
