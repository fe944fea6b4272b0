"""Runs in the forked process of a check: one run, or a stream of results."""

import contextlib
import fcntl
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, State
from nodeheal.agent.checks.check_ipc import ProcessAnswer, dumped

EXIT_REPORTED = 3  # the check has given the reason itself
STREAM_PAUSE_SECONDS = 0.1  # pause after each result of a stream: one that never blocks must not use a whole core


def run_check(check: NodeCheck, place: CheckContext, state: State, writer: int, lifeline: int) -> None:
    """Run the check in the forked process, send its results, and exit. Never returns."""
    code = 1
    try:
        _end_with_the_agent(lifeline)
        _detach_from_agent({writer, lifeline})
        why_not = check.why_not(place)
        if why_not:
            os.write(writer, dumped(ProcessAnswer(check.name, absent=why_not)) + b"\n")
            os._exit(EXIT_REPORTED)
        for look in _looks(check, place, state):
            os.write(writer, dumped(ProcessAnswer(check.name, look)) + b"\n")
        code = 0
    except Exception as error:
        os.write(writer, dumped(ProcessAnswer(check.name, broke=_why(error))) + b"\n")
        code = EXIT_REPORTED
    finally:
        os._exit(code)


def _end_with_the_agent(lifeline: int) -> None:
    """End this process when the agent ends, however it ends: when the last descriptor of the pipe's other end is
    closed, the kernel sends SIGIO.
    """
    own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)  # only an owner that is set gets the signal
    os.dup2(own, lifeline, inheritable=False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)


def _detach_from_agent(kept: set[int]) -> None:
    """Detach from the agent: a check process that stays must not hold the agent's descriptors."""
    gc.freeze()  # nor run the agent's finalizers: they close descriptor numbers that this process uses for other files
    # Exit normally, so that a tool that the check has started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # Ctrl-C reaches the whole terminal; the agent decides when its checks end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.scandir("/proc/self/fd") as entries:
        opened = {int(entry.name) for entry in entries}
    for descriptor in opened - {0, 1, 2} - kept:
        with contextlib.suppress(OSError):  # closed with the list
            os.close(descriptor)


def _why(error: Exception) -> str:
    """Describe the error in one line. The agent logs it once, not at every run."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"


def _looks(check: NodeCheck, place: CheckContext, state: State) -> Iterator[NodeCheckResult]:
    if check.stream is None:
        yield check.look(place, state)
        return
    for look in check.stream(place, state):
        yield look
        time.sleep(STREAM_PAUSE_SECONDS)
