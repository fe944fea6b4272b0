"""The stream of `gpu_state`, and who uses a GPU; only nodes with NVIDIA GPUs load this module.

An XID event is reported here only where no kernel log can be read. The kernel's line contains the same and more
(process, sub-code), and a fault that is reported twice would count twice.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import pynvml

from nodeheal.agent.checks.check import CheckContext, NodeCheckResult, Problem, State
from nodeheal.agent.checks.dedupe import without_duplicates
from nodeheal.agent.checks.gpu_judgement import accelerators_of, gauges, judge, names_of
from nodeheal.agent.checks.gpu_reading import GpuReading, problem
from nodeheal.agent.checks.hardware import gpus_with_driver
from nodeheal.agent.checks.nvml import GpuEvent, Nvml
from nodeheal.agent.checks.tools import is_installed
from nodeheal.agent.runtime.thresholds import Limit
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

# Events of one fault come together. Those that follow within this time are reported with the first; a storm is split
# into such batches.
GATHER_SECONDS, PORTION_SECONDS = 0.2, 1.0
_ERRORS = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "DRIVER_NOT_LOADED",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "DRIVER_MISMATCH",
}


def looks(place: CheckContext, state: State, every_seconds: float) -> Iterator[NodeCheckResult]:
    """Yield a result at the interval and at every event, without end."""
    nvml: Nvml | None = None
    events: Counter[GpuEvent] = Counter()
    tells_xids = not _reads_kernel_log(place)
    while True:
        due_at = time.monotonic() + every_seconds
        try:
            nvml = nvml or Nvml(_known(place, state))
            readings = nvml.read()
        except pynvml.NVMLError as error:
            if nvml is not None:
                nvml.close()
            nvml, result = None, _unusable(error, state)
        else:
            result = _seen(readings, events if tells_xids else Counter(), state, nvml.addresses, place.config.limit)
        state = result.state
        yield without_duplicates(result, place)
        events = _events(nvml, due_at)


def users() -> frozenset[int] | None:
    """Return the processes that use a GPU; None where the driver does not list them."""
    try:
        nvml = Nvml()
        try:
            return nvml.users()
        finally:
            nvml.close()
    except pynvml.NVMLError:
        return None


def _seen(
    readings: Sequence[GpuReading], events: Counter[GpuEvent], state: State, known: Sequence[str], limit: Limit
) -> NodeCheckResult:
    judged = judge(readings, state, time.monotonic(), limit)
    silent = [reading.component for reading in readings if reading.error]
    none = () if readings else (problem("NO_DEVICES", None, "the driver shows no GPU"),)
    return NodeCheckResult(
        (*judged.problems, *none),
        unclear=f"{', '.join(silent)}: no answer" if silent else judged.doubt,
        state={**judged.state, "known": list(known)},
        gauges=gauges(readings, judged.healthy),
        called=names_of(readings),
        accelerators=accelerators_of(readings),
        happened=tuple(_xid(event, count) for event, count in events.items() if event.xid is not None),
        summary=f"{len(readings)} GPUs",
    )


def _unusable(error: pynvml.NVMLError, state: State) -> NodeCheckResult:
    """No GPU can be read. A driver reload looks the same for a moment, so only the second such result counts."""
    code, kept = _ERRORS.get(error.value), {**state, "unusable": error.value}
    is_known = code is not None and state.get("unusable") == error.value
    return NodeCheckResult(
        (problem(code, None, f"NVML: {error}"),) if code and is_known else (), f"NVML: {error}", kept
    )


def _events(nvml: Nvml | None, due_at: float) -> Counter[GpuEvent]:
    """Collect driver events until the next run is due; returns early where there is one."""
    heard: Counter[GpuEvent] = Counter()
    until = due_at
    while nvml is not None and (left := until - time.monotonic()) > 0:
        try:
            event = nvml.wait(min(left, GATHER_SECONDS) if heard else left)
        except pynvml.NVMLError:
            break  # events are not available; polling goes on
        if event is None:
            break
        if not heard:
            until = min(due_at, time.monotonic() + PORTION_SECONDS)
        heard[event] += 1
    if not heard:
        time.sleep(max(0.0, due_at - time.monotonic()))
    return heard


def _xid(event: GpuEvent, count: int) -> Problem:
    message = f"NVML reports XID {event.xid} of {event.component}"
    return Problem(Finding(Family.xid, str(event.xid), event.component, message), message, count)


def _known(place: CheckContext, state: State) -> list[str]:
    """Return the GPUs' addresses from earlier readings, else in the driver's order, which NVML shares."""
    known = state.get("known")
    addresses = known if isinstance(known, list) else []
    return [str(before or now) for before, now in zip_longest(addresses, gpus_with_driver(place), fillvalue="")]


def _reads_kernel_log(place: CheckContext) -> bool:
    logs = place.config.kernel_log
    return any(is_installed("journalctl") if log.kind == "journald" else _can_open(log.path) for log in logs)


def _can_open(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
