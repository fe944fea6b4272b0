"""What a timeline says of unmanaged tasks: which were stopped, left to run, gone before, and started again."""

from collections.abc import Iterable
from dataclasses import dataclass

from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.timeline import (
    TaskGone,
    TaskLeftRunning,
    TaskStarted,
    TaskStopped,
    TaskToStop,
    TimelineEntry,
    entries_with,
    payloads_of,
)

_MOST_NAMED = 3


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
    def has_stopped_late(self) -> bool:
        """Whether its stop took longer than the isolation, and its scheduler has started it again since."""
        return self.is_restarted and self.by_us is None

    @property
    def is_restarted(self) -> bool:
        """Whether it is started again."""
        return bool(self.successor) and not self.is_held


def stopped_tasks(timeline: Iterable[TimelineEntry]) -> list[StoppedTask]:
    """Returns the tasks that an incident began to stop, in order."""
    entries = list(timeline)
    stops = {stop.short_id: stop for stop in payloads_of(entries, TaskStopped)}
    successors = {start.short_id: start.successor for start in payloads_of(entries, TaskStarted)}
    tasks = [stopping.task for stopping in payloads_of(entries, TaskToStop)]
    return [_stopped(task, stops.get(task.short_id), successors.get(task.short_id)) for task in tasks]


def tasks_not_restarted(timeline: Iterable[TimelineEntry]) -> list[UnmanagedTask]:
    """Returns the tasks that an incident has stopped, or may have stopped, and that were not started again."""
    return [stopped.task for stopped in stopped_tasks(timeline) if stopped.by_us is not False and not stopped.successor]


def not_restarted_text(timeline: Iterable[TimelineEntry]) -> str:
    """Returns which stopped tasks are not started again, as sentences for the ending. Empty: all are."""
    stopped = stopped_tasks(timeline)
    owed = [each.task for each in stopped if each.is_owed]
    if owed:
        return f" These tasks were stopped, and no node is in service to start them on: {named(owed)}."
    refused = [each.task for each in stopped if each.successor == ""]
    open_ = [each.task for each in stopped if each.by_us is None and not each.successor]
    text = f" These tasks were stopped and could not be started again: {named(refused)}." if refused else ""
    look = f" Look whether these tasks still run, a stop of them was begun: {named(open_)}." if open_ else ""
    return text + look


def named(tasks: Iterable[UnmanagedTask]) -> str:
    """Returns the tasks in words."""
    return ", ".join(map(str, tasks))


def tasks_left_running(timeline: Iterable[TimelineEntry]) -> list[str]:
    """Returns the tasks that an incident has left running, in words, in order."""
    return [str(left.task) for left in payloads_of(timeline, TaskLeftRunning)]


def tasks_gone(timeline: Iterable[TimelineEntry]) -> list[str]:
    """Returns what had become of the tasks that were gone before nodeheal came, in words."""
    return [entry.text for entry in entries_with(timeline, TaskGone)]


def tasks_there(timeline: Iterable[TimelineEntry]) -> str:
    """Returns the first tasks that ran there, or had run there, and how many more there are. Empty: none is known."""
    entries = list(timeline)
    tasks = [
        *(gone.task for gone in payloads_of(entries, TaskGone)),
        *(stopping.task for stopping in payloads_of(entries, TaskToStop)),
        *(left.task for left in payloads_of(entries, TaskLeftRunning)),
    ]
    more = len(tasks) - _MOST_NAMED
    return ", ".join(map(str, tasks[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def job_text(history: History) -> str:
    """Returns whose work the incident touches: the job of nodeheal's, else the tasks of others."""
    there = tasks_there(history.timeline)
    return history.incident.job_id or (f"none of nodeheal's; of others: {there}" if there else "none of ours")


def restart_reports(timeline: Iterable[TimelineEntry]) -> list[str]:
    """Returns the result of each start of a stopped task, in words."""
    return [entry.text for entry in entries_with(timeline, TaskStarted)]


def _stopped(task: UnmanagedTask, stop: TaskStopped | None, successor: str | None) -> StoppedTask:
    if stop is None:
        return StoppedTask(task, None, successor)
    return StoppedTask(task, stop.by_us, successor, is_held=stop.is_held)
