"""A guest: a task on a node that nodeheal did not start, and that nobody else would start again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from nodeheal.contract import names
from nodeheal.domain.recovery.incident import TimelineEntry

# How the lines of a timeline about guests are named; the task's id follows.
SEEN, STOPPED, STARTED = "guest-seen-", "guest-stopped-", "guest-started-"
LEFT_TO_RUN = "is left to run"
_YES = "yes"


@dataclass(frozen=True)
class Guest:
    """What is needed to start the task again. `overrides` is JSON, as the scheduler gave it and takes it."""

    task_id: str
    definition: str
    started_by: str = ""
    group: str = ""
    launch_type: str = ""
    overrides: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def may_be_stopped(self) -> bool:
        """Whether who started it has said so, by the tag that says "nodeheal may act on this"."""
        return self.tags.get(names.MANAGED_TAG) == names.MANAGED_TAG_VALUE

    @property
    def mark(self) -> str:
        """How its successor is known: there is one, whatever is repeated."""
        return names.successor_of(self.task_id)

    @property
    def short_id(self) -> str:
        """The end of the task's id, which is unique by itself."""
        return self.task_id.rsplit("/", 1)[-1]

    def __str__(self) -> str:
        by = f", started by {self.started_by}" if self.started_by else ""
        return f"{self.definition.rsplit('/', 1)[-1]} ({self.short_id}{by})"


@dataclass(frozen=True)
class Stopped:
    """What a timeline tells of one guest that was to be stopped."""

    guest: Guest
    by_us: bool | None  # None: the stop was not answered yet
    successor: str | None  # the task that was started in its place; empty: its start was refused

    @property
    def is_owed(self) -> bool:
        """Whether it is still to be started again. One that ended by itself is not."""
        return self.by_us is True and self.successor is None


def stopped_guests(timeline: Iterable[TimelineEntry]) -> list[Stopped]:
    """The guests that an incident set out to stop, in order."""
    told = {entry.entry_id: entry.data for entry in timeline}
    guests = [_LOADED.validate_json(data) for name, data in told.items() if name.startswith(SEEN) and data]
    return [_read(guest, told) for guest in guests]


def not_back(timeline: Iterable[TimelineEntry]) -> list[Guest]:
    """The guests that an incident has stopped, for all that is known, and for which nothing was started."""
    return [one.guest for one in stopped_guests(timeline) if one.by_us is not False and not one.successor]


def left_guests(timeline: Iterable[TimelineEntry]) -> list[str]:
    """The guests that an incident has left to run, as people know them, in order."""
    left = [entry.text for entry in timeline if entry.entry_id.startswith(SEEN) and entry.text.endswith(LEFT_TO_RUN)]
    return [text.removeprefix("task ").removesuffix(LEFT_TO_RUN).strip() for text in left]


def restarts(timeline: Iterable[TimelineEntry]) -> list[str]:
    """What became of each guest that was to be started again, in words."""
    return [entry.text for entry in timeline if entry.entry_id.startswith(STARTED)]


def dumped(guest: Guest) -> str:
    """The guest as a timeline keeps it."""
    return _LOADED.dump_json(guest).decode()


def answered(by_us: bool) -> str:
    """The answer to a stop as a timeline keeps it."""
    return _YES if by_us else "no"


def _read(guest: Guest, told: Mapping[str, str]) -> Stopped:
    answer = told.get(f"{STOPPED}{guest.short_id}")
    by_us = None if answer is None else answer == _YES
    return Stopped(guest, by_us, told.get(f"{STARTED}{guest.short_id}"))


_LOADED: TypeAdapter[Guest] = TypeAdapter(Guest)
