"""The bell that threads wait for."""

import os
import threading
import time
from pathlib import Path

from nodeheal.agent.runtime.eventfd_event import EventfdEvent


def test_a_wait_ends_when_the_event_is_set() -> None:
    wake_event = EventfdEvent()
    threading.Timer(0.05, wake_event.set).start()

    assert wake_event.wait(20.0)
    assert wake_event.is_set()


def test_a_wait_ends_when_its_time_is_over_and_not_before() -> None:
    wake_event, began = EventfdEvent(), time.monotonic()

    assert not wake_event.wait(0.05)

    assert 0.05 <= time.monotonic() - began < 5.0


def test_an_event_that_was_set_twice_is_cleared_at_once() -> None:
    wake_event = EventfdEvent()
    wake_event.clear()
    wake_event.set()
    wake_event.set()

    wake_event.clear()

    assert not wake_event.is_set()


def test_an_event_can_be_set_for_ever() -> None:
    wake_event = EventfdEvent()
    os.eventfd_write(wake_event._descriptor, 2**64 - 2)

    wake_event.set()

    assert wake_event.is_set()


def test_an_event_that_is_gone_holds_no_descriptor() -> None:
    opened = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(100):
        EventfdEvent()

    # Threads of other tests open and close some at the same time.
    assert len(list(Path("/proc/self/fd").iterdir())) < opened + 50
