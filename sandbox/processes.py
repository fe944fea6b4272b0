"""Finds and ends real processes by a mark in their environment, which survives forks and new sessions."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator

import psutil

NODE_MARK = "NODEHEAL_SANDBOX_NODE_DIR"  # of every process on a simulated node; the fake tools read it, too
SANDBOX_MARK = "NODEHEAL_SANDBOX_ID"  # of every process of one sandbox

_DEATH_SECONDS = 40.0
_POLL_SECONDS = 0.02


def with_mark(mark: str, value: str) -> list[psutil.Process]:
    """Return every live process, except this one, whose environment contains `mark=value`."""
    return _matching(lambda process: process.environ().get(mark) == value)


def in_session(session: int) -> list[psutil.Process]:
    """Return every live process, except this one, of one session."""
    return _matching(lambda process: os.getsid(process.pid) == session)


def _matching(is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE and is_wanted(process):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # it has just ended, or this user may not read it
    return found


def kill_all(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill what `find` returns until it returns nothing, since a process may fork meanwhile.

    Raises TimeoutError if a process does not die.
    """
    killed: set[psutil.Process] = set()
    deadline = time.monotonic() + _DEATH_SECONDS
    # Not wait_procs: an orphan is a zombie until init collects it, which counts as dead.
    while processes := list(find()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still alive: {[process.pid for process in processes]}")
        for process in processes:
            send(process, signal.SIGKILL)
        killed.update(processes)
        time.sleep(_POLL_SECONDS)
    psutil.wait_procs(killed, timeout=0)  # own children are reaped


def terminate_group(pid: int, grace_seconds: float, has_ended: Callable[[], bool]) -> None:
    """Send SIGTERM to a process group, and SIGKILL if its leader is not gone within its grace period."""
    _signal_group(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline:
        if has_ended():
            return
        time.sleep(_POLL_SECONDS)
    _signal_group(pid, signal.SIGKILL)


def abort_group(pid: int) -> None:
    """Send SIGABRT to a process group, which is how CUDA ends a process whose GPU is gone."""
    _signal_group(pid, signal.SIGABRT)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended first
        os.killpg(pid, number)


def send(process: psutil.Process, number: signal.Signals) -> None:
    """Send the signal, if the process still exists."""
    with contextlib.suppress(psutil.Error):  # it ended first
        process.send_signal(number)


@contextlib.contextmanager
def no_interrupt() -> Iterator[None]:
    """Block Ctrl-C. Only the main thread may, and only it receives one."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
