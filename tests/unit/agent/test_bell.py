"""The bell that threads wait for."""

import os
import threading
import time
from pathlib import Path

from nodeheal.agent.bell import Bell


def test_a_wait_ends_when_the_bell_is_rung() -> None:
    bell = Bell()
    threading.Timer(0.05, bell.set).start()

    assert bell.wait(20.0)
    assert bell.is_set()


def test_a_wait_ends_when_its_time_is_over_and_not_before() -> None:
    bell, began = Bell(), time.monotonic()

    assert not bell.wait(0.05)

    assert 0.05 <= time.monotonic() - began < 5.0


def test_a_bell_that_was_rung_twice_is_cleared_at_once() -> None:
    bell = Bell()
    bell.clear()
    bell.set()
    bell.set()

    bell.clear()

    assert not bell.is_set()


def test_a_bell_can_be_rung_for_ever() -> None:
    bell = Bell()
    os.eventfd_write(bell._descriptor, 2**64 - 2)

    bell.set()

    assert bell.is_set()


def test_a_bell_that_is_gone_holds_no_descriptor() -> None:
    opened = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(100):
        Bell()

    # Threads of other tests open and close some at the same time.
    assert len(list(Path("/proc/self/fd").iterdir())) < opened + 50
