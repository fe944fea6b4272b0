"""What a process does that the prober has forked: one look, or a stream of them."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from nodeheal.agent.checks.answer import Answer, dumped
from nodeheal.agent.checks.check import Check, Look, Place, State

EXIT_TOLD = 3  # the look has said itself why there is none
STREAM_PAUSE_SECONDS = 0.1  # after each look of a stream: one that never pauses must not burn a core


def look_once(check: Check, place: Place, state: State, writer: int) -> None:
    """In a process of its own: look, say what was found, end. Never returns."""
    # An exit like any other, so that a tool that was started ends with the look.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    code = 1
    try:
        why_not = check.why_not(place)
        if why_not:
            os.write(writer, dumped(Answer(check.name, absent=why_not)) + b"\n")
            os._exit(EXIT_TOLD)
        for look in _looks(check, place, state):
            os.write(writer, dumped(Answer(check.name, look)) + b"\n")
        code = 0
    except Exception as error:
        os.write(writer, dumped(Answer(check.name, broke=_why(error))) + b"\n")
        code = EXIT_TOLD
    finally:
        os._exit(code)


def _why(error: Exception) -> str:
    """In one line: the agent says it once, and not at every look."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"


def _looks(check: Check, place: Place, state: State) -> Iterator[Look]:
    if check.stream is None:
        yield check.look(place, state)
        return
    for look in check.stream(place, state):
        yield look
        time.sleep(STREAM_PAUSE_SECONDS)
