"""Checks whether the host is short of memory, by the kernel's measure of stalled tasks.

Source: Documentation/accounting/psi.rst of the kernel; proc_meminfo(5).
"""

import re
from collections.abc import Iterator

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.runtime.thresholds import MEMORY_STALLED
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

_FULL = re.compile(r"^full .{0,40}\bavg60=(\d{1,3}(?:\.\d{1,4})?)", re.MULTILINE)
_FIELD = re.compile(r"^(MemTotal|MemAvailable):\s{1,20}(\d{1,15}) kB", re.MULTILINE)


def parse_pressure(text: str) -> float | None:
    """Return the percentage of the last minute in which every task waited for memory; None where the text is
    not valid.
    """
    match = _FULL.search(text)
    return float(match[1]) if match else None


def parse_used_percent(text: str) -> float | None:
    """Return the percentage of memory that is not available; None where the text is not valid."""
    sizes = {name: int(size) for name, size in _FIELD.findall(text)}
    total, available = sizes.get("MemTotal", 0), sizes.get("MemAvailable")
    return 100.0 * (1 - available / total) if total and available is not None else None


def _judge(stalled: float, used: float, limit: float) -> Iterator[Problem]:
    if stalled >= limit:
        message = f"all tasks waited for memory in {stalled:g} % of the last minute; {used:.0f} % is in use"
        yield Problem(Finding(Family.host, "memory_pressure", None, message), message)


def _why_not(place: CheckContext) -> str:
    return "" if (place.proc / "pressure/memory").exists() else "the kernel has no /proc/pressure (CONFIG_PSI)"


def _look(place: CheckContext, _: State) -> NodeCheckResult:
    stalled = parse_pressure((place.proc / "pressure/memory").read_text("ascii", "replace"))
    used = parse_used_percent((place.proc / "meminfo").read_text("ascii", "replace"))
    if stalled is None or used is None:
        return NodeCheckResult(unclear="/proc/pressure/memory or /proc/meminfo is not valid")
    gauges = {"memory_stalled_percent": stalled}  # host_load measures how much is in use
    problems = tuple(_judge(stalled, used, place.config.limit(MEMORY_STALLED)))
    return NodeCheckResult(problems, gauges=gauges, summary=f"{used:.0f} % of the memory is in use")


CHECK = NodeCheck(
    name="memory",
    about="memory pressure",
    interval_seconds=60.0,
    deadline_seconds=10.0,
    why_not=_why_not,
    look=_look,
    confirm=3,
)
