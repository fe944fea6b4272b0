"""Signals between threads, independently of the time of day.

Not threading.Event: a Python built for a C library older than 2.30 measures its waits by the time of day. A clock that
is set back by a day would delay the next heartbeat by a day.
"""

import contextlib
import math
import os
import select


class EventfdEvent:
    """An event with the interface of threading.Event: set until it is cleared."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)

    def set(self) -> None:
        """Set the event, from any thread or a signal handler."""
        with contextlib.suppress(BlockingIOError):  # the counter is at its maximum, so it is set
            os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Clear the event."""
        with contextlib.suppress(BlockingIOError):  # it was clear
            os.eventfd_read(self._descriptor)

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._is_set_within(0.0)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set or the seconds have passed. Returns whether it is set."""
        return self._is_set_within(seconds)

    def _is_set_within(self, seconds: float) -> bool:
        news = select.poll()  # one for each call: two threads must not share it
        news.register(self._descriptor, select.POLLIN)
        return bool(news.poll(math.ceil(seconds * 1000)))
