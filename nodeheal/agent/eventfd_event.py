"""What one thread rings and another waits for, whatever happens to the time of day meanwhile.

Not threading.Event: a Python that was built for a C library older than 2.30 counts its waits by the time of day. When
that is set back by a day, the next heartbeat would come a day late.
"""

import contextlib
import math
import os
import select


class EventfdEvent:
    """As threading.Event: set until it is cleared."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)

    def set(self) -> None:
        """Ring. From any thread, and from what handles a signal."""
        with contextlib.suppress(BlockingIOError):  # it has been set as often as can be counted
            os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Be quiet again."""
        with contextlib.suppress(BlockingIOError):  # it was
            os.eventfd_read(self._descriptor)

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set_within(0.0)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set or the time is over. Returns whether it is set."""
        return self._is_set_within(seconds)

    def _is_set_within(self, seconds: float) -> bool:
        news = select.poll()  # one for each: two threads must not use the same
        news.register(self._descriptor, select.POLLIN)
        return bool(news.poll(math.ceil(seconds * 1000)))
