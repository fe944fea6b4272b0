"""Waiting for what the embedded cloud does in its own time."""

import time
from collections.abc import Callable
from typing import Any

WAIT_SECONDS = 60.0


def until(found: Callable[[], Any], what: str) -> Any:
    """What it says as soon as it says anything. An AssertionError names `what` did not come."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"after {WAIT_SECONDS:.0f} s there is no {what}")
