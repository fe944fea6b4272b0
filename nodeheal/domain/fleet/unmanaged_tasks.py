"""Unmanaged tasks: tasks on a node that nodeheal did not start, and that no service would start again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeheal.contract import names
from nodeheal.contract.type_adapters import adapter_of
from nodeheal.domain.recovery.incident import History, TimelineEntry

# How timeline entries about unmanaged tasks are named; the task's id follows. Stored timelines have these ids.
SEEN, STOPPED, STARTED = "guest-seen-", "guest-stopped-", "guest-started-"
GONE = "guest-gone-"  # one that had ended, or was requeued, before nodeheal came
LEFT_TO_RUN = "is left to run"
_MOST_NAMED = 3
_YES, _HELD = "yes", "held"


@dataclass(frozen=True)
class UnmanagedTask:
    """A task, under the name that people know.

    `may_be_stopped`: its owner allows that. `scheduler_json`: what its scheduler needs to stop it or to start it again,
    in its own form. `is_held`: a scheduler that would start it again by itself must wait for a person. `before`: what
    had become of it before nodeheal came, in words; empty: it is there. `may_be_deleted`: its deadline has passed, and
    the pool lets it be ended past what protects it. `owner_email`: whom its scheduler's object says that it belongs to.
    """

    task_id: str
    name: str
    started_by: str = ""
    may_be_stopped: bool = False
    scheduler_json: str = ""
    is_held: bool = False
    before: str = ""
    may_be_deleted: bool = False
    owner_email: str = ""

    @property
    def mark(self) -> str:
        """The name under which its one successor is started, however often the call is repeated."""
        return names.successor_of(self.task_id)

    @property
    def short_id(self) -> str:
        """The end of the task's id, which is unique by itself."""
        return self.task_id.rsplit("/", 1)[-1]

    def __str__(self) -> str:
        by = f", started by {self.started_by}" if self.started_by else ""
        return f"{self.name} ({self.short_id}{by})"


@dataclass(frozen=True)
class StoppedTask:
    """What a timeline says of one task that was to be stopped."""

    task: UnmanagedTask
    by_us: bool | None  # None: the stop was not answered yet
    successor: str | None  # the task that was started in its place; empty: its start was refused
    is_held: bool = False  # its scheduler starts it again only when a person says so

    @property
    def is_owed(self) -> bool:
        """Whether it must still be started again. A task that ended by itself must not."""
        return self.by_us is True and self.successor is None

    @property
    def is_restarted(self) -> bool:
        """Whether it is started again."""
        return bool(self.successor) and not self.is_held


def stopped_tasks(timeline: Iterable[TimelineEntry]) -> list[StoppedTask]:
    """Returns the tasks that an incident began to stop, in order."""
    entries = {entry.entry_id: entry.data for entry in timeline}
    tasks = [_loaded(data) for name, data in entries.items() if name.startswith(SEEN) and data]
    return [_read(task, entries) for task in tasks]


def tasks_not_restarted(timeline: Iterable[TimelineEntry]) -> list[UnmanagedTask]:
    """Returns the tasks that an incident has stopped, or may have stopped, and that were not started again."""
    return [one.task for one in stopped_tasks(timeline) if one.by_us is not False and not one.successor]


def tasks_left_running(timeline: Iterable[TimelineEntry]) -> list[str]:
    """Returns the tasks that an incident has left running, in words, in order. What is stopped has data of its own."""
    left = [entry.text for entry in timeline if entry.entry_id.startswith(SEEN) and not entry.data]
    return [text.removeprefix("task ").removesuffix(LEFT_TO_RUN).strip() for text in left]


def tasks_gone(timeline: Iterable[TimelineEntry]) -> list[str]:
    """Returns what had become of the tasks that were gone before nodeheal came, in words."""
    return [entry.text for entry in timeline if entry.entry_id.startswith(GONE)]


def tasks_there(timeline: Iterable[TimelineEntry]) -> str:
    """Returns the first tasks that ran there, or had run there, and how many more there are. Empty: none is known."""
    entries = list(timeline)
    gone = [str(_loaded(entry.data)) for entry in entries if entry.entry_id.startswith(GONE)]
    found = [*gone, *(str(one.task) for one in stopped_tasks(entries)), *tasks_left_running(entries)]
    more = len(found) - _MOST_NAMED
    return ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def job_text(history: History) -> str:
    """Returns whose work the incident touches: the job of nodeheal's, else the tasks of others."""
    there = tasks_there(history.timeline)
    return history.incident.job_id or (f"none of nodeheal's; of others: {there}" if there else "none of ours")


def restart_reports(timeline: Iterable[TimelineEntry]) -> list[str]:
    """Returns the result of each start of a stopped task, in words."""
    return [entry.text for entry in timeline if entry.entry_id.startswith(STARTED)]


def dumped(task: UnmanagedTask) -> str:
    """Returns the task as a timeline stores it."""
    return adapter_of(UnmanagedTask).dump_json(task).decode()


def answered(by_us: bool, *, is_held: bool = False) -> str:
    """Returns the answer to a stop as a timeline stores it."""
    return (_HELD if is_held else _YES) if by_us else "no"


def _read(task: UnmanagedTask, entries: Mapping[str, str]) -> StoppedTask:
    answer = entries.get(f"{STOPPED}{task.short_id}")
    by_us = None if answer is None else answer in (_YES, _HELD)
    return StoppedTask(task, by_us, entries.get(f"{STARTED}{task.short_id}"), is_held=answer == _HELD)


def _loaded(data: str) -> UnmanagedTask:
    task: UnmanagedTask = adapter_of(UnmanagedTask).validate_json(data)
    return task
