"""Forks this process while none of its other threads is at work.

A process is forked with one thread alone, and with every lock as it was: one that another thread held just then, in
OpenSSL or in what resolves names, nobody gives back in the copy. A look that waits for it would look like hardware that
hangs. So each thread says when it works; between, it waits for its next turn and holds nothing.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_working: list[str] = []  # the threads, by name


@contextmanager
def at_work() -> Iterator[None]:
    """For every thread but the one that forks: around all that it does."""
    name = threading.current_thread().name
    with _lock:
        _working.append(name)
    try:
        yield
    finally:
        with _lock:
            _working.remove(name)


def forked(anyway: bool = False) -> int | None:
    """As os.fork; None: a thread is at work. `anyway`: though one is. Raises OSError."""
    with _lock:
        return os.fork() if anyway or not _working else None
