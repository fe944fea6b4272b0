"""Puts events of the sandbox's ECS and SSM on the emulator's default bus under their real sources, in order."""

import contextlib
import json
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandbox.behaviour import Behaviour

REORDER_SECONDS = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """One event in EventBridge's form."""

    source: str
    detail_type: str
    resources: tuple[str, ...]
    detail: dict[str, Any]


Emit = Callable[[Event], None]


class EventPump:
    """Puts events on the bus from one thread: callers hold locks that a target may need."""

    def __init__(self, put: Emit, behaviour: Behaviour | None = None) -> None:
        self._put = put
        self._behaviour = behaviour or Behaviour()
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def emit(self, event: Event) -> None:
        """Queue an event; returns at once."""
        self._queue.put(event)

    def _run(self) -> None:
        while True:
            event = self._queue.get()
            for each in reversed(self._with_next(event)) if self._behaviour.reorder_events else (event,):
                for _ in range(1 + self._behaviour.duplicate_events):
                    self._put_one(each)

    def _with_next(self, event: Event) -> list[Event]:
        """Return the event and its successor, if one comes soon."""
        with contextlib.suppress(queue.Empty):
            return [event, self._queue.get(timeout=REORDER_SECONDS)]
        return [event]

    def _put_one(self, event: Event) -> None:
        try:
            self._put(event)
        except Exception:
            logger.exception("an event was lost: %s %s", event.detail_type, event.detail)


def wire_time(moment: datetime) -> str:
    """Format a time as AWS does in event details."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event_detail(description: dict[str, Any]) -> dict[str, Any]:
    """Convert an API description into an event's detail, with its times as text."""
    shaped: dict[str, Any] = json.loads(json.dumps(description, default=wire_time))
    return shaped
