"""Follows the double-bit error counters that DCGM's policies read, by `dcgmi dmon`, and reports each rise.

A drill of DCGM's policies puts a value into field 319 alone, which no health watch and no NVML reading shows. The host
engine keeps it until its next query of the driver, one interval later, so that a dmon that runs all the time reads it
once. docs/adr/0076 says why policies themselves are not used.
"""

import select
import time
from collections.abc import Generator, Iterator

from nodeheal.agent.checks import dcgm
from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.checks.dcgm_drills import marked
from nodeheal.agent.checks.dcgm_host import dcgmi
from nodeheal.agent.checks.follower import Follower
from nodeheal.agent.checks.gpu_reading import numbers
from nodeheal.agent.checks.hardware import has_nvidia
from nodeheal.agent.checks.tools import is_installed
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.dcgm_dmon import read_rows
from nodeheal.parsers.dcgm_injected import DOUBLE_BIT_FIELDS, POLICY_DOUBLE_BIT
from nodeheal.parsers.finding import Finding

# The interval of the policies themselves. A shorter one would take an injected value away from other readers sooner.
EVERY_SECONDS = 10.0
TICK_SECONDS, REPORT_SECONDS, SILENT_SECONDS = 20.0, 60.0, 60.0


def why_not(place: CheckContext) -> str:
    """Require NVIDIA GPUs, by the hardware or by the configuration, and DCGM."""
    if not (has_nvidia(place) or place.config.accelerators):
        return "no NVIDIA GPU"
    return "" if is_installed(dcgm.TOOL) else "DCGM is not installed: there is no dcgmi"


def look(place: CheckContext, state: State) -> NodeCheckResult:
    """Read the counters once."""
    results = stream(place, state)
    try:
        return next(results)
    finally:
        results.close()


def stream(place: CheckContext, state: State) -> Generator[NodeCheckResult]:
    """Follow the counters without end. The first value of a counter in this boot is no fault: counters go on."""
    counts, heard_at, told_at = numbers(state, "counts"), time.monotonic(), 0.0
    fields = ",".join(map(str, DOUBLE_BIT_FIELDS))
    command = dcgmi(place.config, "dmon", "-e", fields, "-d", str(int(EVERY_SECONDS * 1000)))
    follower = Follower(lambda: command)
    try:
        while True:
            select.select([follower.descriptor], [], [], TICK_SECONDS)
            now = time.monotonic()
            rows = dict(read_rows(follower.read(now).decode("utf-8", "replace"), DOUBLE_BIT_FIELDS))
            risen = tuple(_risen(rows, counts, place))
            heard_at = now if rows else heard_at
            is_silent = now - heard_at >= SILENT_SECONDS
            if risen or (now - told_at >= REPORT_SECONDS and (rows or is_silent)):
                told_at = now
                unclear = "dcgmi dmon shows no counters" if is_silent else ""
                yield NodeCheckResult(
                    happened=risen, unclear=unclear, state={"counts": dict(counts)}, summary="no rise"
                )
    finally:
        follower.close()


def _risen(rows: dict[int, dict[int, int]], counts: dict[str, float], place: CheckContext) -> Iterator[Problem]:
    """Yield one problem for each GPU with a counter that has risen, and remember all counters."""
    for gpu, values in rows.items():
        component = f"GPU {gpu}"
        before = {field: counts.get(f"{component}/{field}") for field in values}
        rises = [
            f"field {field} from {known:g} to {values[field]}"
            for field, known in before.items()
            if known is not None and values[field] > known
        ]
        counts.update({f"{component}/{field}": float(value) for field, value in values.items()})
        if rises:
            message = f"DCGM counts more double-bit errors of {component}: {', '.join(rises)}"
            finding = marked(Finding(Family.dcgm, POLICY_DOUBLE_BIT, component, message), place.config)
            yield Problem(finding, finding.message)


CHECK = NodeCheck(
    name="dcgm_counters",
    about="rises of the double-bit error counters that DCGM's policies read",
    interval_seconds=EVERY_SECONDS,
    deadline_seconds=180.0,
    why_not=why_not,
    look=look,
    stream=stream,
)
