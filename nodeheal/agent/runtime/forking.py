"""Forks this process while none of its other threads is at work.

A fork copies one thread and all locks. Nothing releases a lock in the copy that another thread held, such as one of
OpenSSL or of name resolution. A check that waits for it would look like hanging hardware. So each thread marks when it
works; in between, it waits for its next turn and holds no lock.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_working: list[str] = []  # working threads, by name


@contextmanager
def at_work() -> Iterator[None]:
    """Mark the current thread as working, for the duration of the context. Every thread but the forking one uses it."""
    name = threading.current_thread().name
    with _lock:
        _working.append(name)
    try:
        yield
    finally:
        with _lock:
            _working.remove(name)


def forked(anyway: bool = False) -> int | None:
    """Fork like os.fork; None: a thread is at work. `anyway`: fork nevertheless. Raises OSError."""
    with _lock:
        return os.fork() if anyway or not _working else None
