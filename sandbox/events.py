"""Events of our ECS and SSM, on the emulator's default bus under their real sources, in the order they happened."""

import json
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """One event as EventBridge takes it."""

    source: str
    detail_type: str
    resources: tuple[str, ...]
    detail: dict[str, Any]


Emit = Callable[[Event], None]


class EventPump:
    """Puts events on the bus from one thread: callers hold locks that a target may want."""

    def __init__(self, put: Emit) -> None:
        self._put = put
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def emit(self, event: Event) -> None:
        """Hand over an event; returns at once."""
        self._queue.put(event)

    def _run(self) -> None:
        while True:
            event = self._queue.get()
            try:
                self._put(event)
            except Exception:
                logger.exception("an event was lost: %s %s", event.detail_type, event.detail)


def wire_time(moment: datetime) -> str:
    """A time as AWS writes it in event details."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event_detail(description: dict[str, Any]) -> dict[str, Any]:
    """An API description as an event's detail: the same, with its times as text."""
    shaped: dict[str, Any] = json.loads(json.dumps(description, default=wire_time))
    return shaped
