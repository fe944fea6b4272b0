"""Simulates the awslogs driver: a container's output goes into the emulator's CloudWatch Logs, line by line."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sandbox.ecs_state import Json, Task

# Append lines to a stream of a group, creating the stream. Raises OSError: the group does not exist.
Sink = Callable[[str, str, list[Json]], None]
LOOK_EVERY_SECONDS = 0.3


def nowhere(group: str, stream: str, events: list[Json]) -> None:
    """A sink for a sandbox without CloudWatch Logs."""


class TaskLogs:
    """Follows the files that containers write to."""

    def __init__(self, sink: Sink = nowhere) -> None:
        self._sink = sink

    def open(self, task: Task) -> None:
        """Create the task's stream. Raises OSError as Docker does where its log driver fails to start."""
        if place := _place(task):
            self._sink(*place, [])

    def follow(self, task: Task, file: Path) -> None:
        """Send new lines in the background, until the task's process has ended."""
        if place := _place(task):
            threading.Thread(target=self._follow, args=(task, file, place), daemon=True).start()

    def _follow(self, task: Task, file: Path, place: tuple[str, str]) -> None:
        with file.open("rb") as output:
            for lines in _batches(output.read, lambda: task.process is not None and task.process.poll() is not None):
                now = int(time.time() * 1000)
                events = [{"timestamp": now, "message": line.decode("utf-8", "replace")} for line in lines]
                self._sink(*place, events)


def _batches(read: Callable[[], bytes], is_over: Callable[[], bool]) -> Iterator[list[bytes]]:
    """Yield whole lines as they come; the last one as it is. Empty lines are not events."""
    rest = b""
    while True:
        is_last = is_over()  # checked first: everything written before is read now
        *lines, rest = (rest + read()).split(b"\n")
        if is_last:
            lines.append(rest)
        if whole := [line for line in lines if line.strip()]:
            yield whole
        if is_last:
            return
        time.sleep(LOOK_EVERY_SECONDS)


def _place(task: Task) -> tuple[str, str] | None:
    """Return (group, stream) of the task's container, in ECS's naming."""
    container = task.definition.container
    log = container.get("logConfiguration", {})
    options = log.get("options", {})
    if log.get("logDriver") != "awslogs" or "awslogs-group" not in options:
        return None
    name = f"{container['name']}/{task.arn.rpartition('/')[2]}"
    return options["awslogs-group"], f"{options.get('awslogs-stream-prefix', 'ecs')}/{name}"
