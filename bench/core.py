"""Measures how fast the core decides and parses lines, on one core of this machine."""

import os
import time
import timeit
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from tempfile import TemporaryDirectory
from unittest.mock import patch

from bench.kernel_log import measure_kernel_log
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import PROGRESS_VARIABLE
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.incident import History, Incident, incident_id_of
from nodeheal.domain.recovery.situation import Situation
from nodeheal.parsers.kernel_line import parse_message
from nodeheal.progress import Progress
from tests.support.builders import ACT, NOW, xid

EVENTS = 50
# A failing node's reports: one fault, its secondary faults, the driver's message, repeated each minute.
CODES = (79, 45, 45, 154, 45)


def measure_core() -> dict[str, float]:
    """Measure decisions on incidents of fifty events and parsed lines, a second, and what a step pays to be shown."""
    fault_line = xid(79).evidence
    return {
        "decisions_one_code_per_second": _decisions(_one_code()),
        "decisions_five_codes_per_second": _decisions(_five_codes()),
        "parsed_fault_lines_per_second": _per_second(lambda: parse_message(fault_line)),
        "shown_step_us": _shown_step_us(),
        **measure_kernel_log(),
    }


def _shown_step_us() -> float:
    """Measure what a training program pays to show a step, in its folder in memory."""
    with (
        TemporaryDirectory(dir="/dev/shm") as folder,
        patch.dict(os.environ, {PROGRESS_VARIABLE: f"{folder}/llama.1.steps"}),
    ):
        progress = Progress()
        progress.saved(1)
        once = partial(progress.step, 1_000_000, loss=2.345678, compute_seconds=0.123456, tokens=16_384)
        often, seconds = timeit.Timer(once, timer=time.process_time).autorange()
    return round(1e6 * seconds / often, 1)


def _one_code() -> list[HealthEvent]:
    return [xid(48, event_id=f"event-{n}", observed_at=NOW + timedelta(seconds=n)) for n in range(EVENTS)]


def _five_codes() -> list[HealthEvent]:
    return [
        xid(
            CODES[n % len(CODES)],
            event_id=f"event-{n}",
            subcode="NODE_REBOOT" if CODES[n % len(CODES)] == 154 else None,
            component=f"0000:{n % 2:02x}:00.0",
            observed_at=NOW + timedelta(seconds=n),
        )
        for n in range(EVENTS)
    ]


def _decisions(events: list[HealthEvent]) -> int:
    root = events[0]
    incident = Incident(incident_id_of(root), root.node_id, root.pool, root, NOW, ACT.version, job_id="llama")
    history = History(incident, tuple(events), ())
    return _per_second(lambda: decide(Situation(history, ACT), NOW))


def _per_second(once: Callable[[], object]) -> int:
    if once() is None:
        raise RuntimeError("the measured call returned nothing")
    often, seconds = timeit.Timer(once, timer=time.process_time).autorange()
    return round(often / seconds)
