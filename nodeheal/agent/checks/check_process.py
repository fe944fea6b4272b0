"""What a process does that was forked for it: one look, or a stream of them."""

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

from nodeheal.agent.checks.check import Check, CheckResult, Place, State
from nodeheal.agent.checks.check_ipc import Answer, dumped

EXIT_REPORTED = 3  # the look has said itself why there is none
STREAM_PAUSE_SECONDS = 0.1  # after each look of a stream: one that never pauses must not burn a core


def run_check(check: Check, place: Place, state: State, writer: int, lifeline: int) -> None:
    """In a process of its own: look, say what was found, end. Never returns."""
    code = 1
    try:
        _end_with_the_agent(lifeline)
        _detach_from_agent({writer, lifeline})
        why_not = check.why_not(place)
        if why_not:
            os.write(writer, dumped(Answer(check.name, absent=why_not)) + b"\n")
            os._exit(EXIT_REPORTED)
        for look in _looks(check, place, state):
            os.write(writer, dumped(Answer(check.name, look)) + b"\n")
        code = 0
    except Exception as error:
        os.write(writer, dumped(Answer(check.name, broke=_why(error))) + b"\n")
        code = EXIT_REPORTED
    finally:
        os._exit(code)


def _end_with_the_agent(lifeline: int) -> None:
    """However it ends, and whatever we wait for: when the last one has closed the other end, the kernel says SIGIO."""
    own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)  # an owner is told who has opened it
    os.dup2(own, lifeline, inheritable=False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)


def _detach_from_agent(kept: set[int]) -> None:
    """As if it were not the agent's copy: a look that stays for good holds on to nothing of the agent's."""
    gc.freeze()  # nor does it clean up what the agent has left: that closes descriptors, which have another use here
    # An exit like any other, so that a tool that was started ends with the look.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the whole terminal: the agent says when it is over
    with os.scandir("/proc/self/fd") as entries:
        opened = {int(entry.name) for entry in entries}
    for descriptor in opened - {0, 1, 2} - kept:
        with contextlib.suppress(OSError):  # the list's own is closed
            os.close(descriptor)


def _why(error: Exception) -> str:
    """In one line: the agent says it once, and not at every look."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"


def _looks(check: Check, place: Place, state: State) -> Iterator[CheckResult]:
    if check.stream is None:
        yield check.look(place, state)
        return
    for look in check.stream(place, state):
        yield look
        time.sleep(STREAM_PAUSE_SECONDS)
