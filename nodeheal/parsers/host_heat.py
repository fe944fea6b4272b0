"""Compares the kernel's counters and temperatures of a host before and after a load. Pure, total.

Sources: the kernel's ABI documents of /sys/class/thermal (thousandths of a degree) and of the processors'
thermal_throttle, and admin-guide/ras.rst.
"""

import re
from collections.abc import Mapping

from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import ToolReport

HEAT, MEMORY = "temperature", "memory_uncorrected"  # the names of the tests that may fail
_LINE = re.compile(r"(/\S{1,300}): (-?\d{1,12}|[A-Za-z_][\w-]{0,40})")
_THROTTLED = re.compile(r".*/cpu\d{1,5}/thermal_throttle/(?:core|package)_throttle_count")
_UNCORRECTED = re.compile(r".*/(mc\d{1,5})/ue_count")
_TEMPERATURE = re.compile(r"(.*/thermal_zone\d{1,5})/temp")
# From here on the kernel itself intervenes, or shuts down.
_LIMITS = ("critical", "hot")
_BELIEVABLE = range(1, 250_000)  # values of absent sensors are ignored, as stress-ng does


def read_host(text: str) -> dict[str, str]:
    """Parse a listing of `path: value`, by path; invalid lines are ignored."""
    matches = (_LINE.fullmatch(line[:400]) for line in text.splitlines())
    return {match[1]: match[2] for match in matches if match is not None}


def judge_load(before: Mapping[str, str], after: Mapping[str, str]) -> ToolReport:
    """Return errors and slowdowns caused by the load, and the heat at its end. Missing values are not judged."""
    uncorrected = _risen(_UNCORRECTED, before, after)
    if uncorrected:
        text = f"{sum(uncorrected.values())} uncorrectable memory errors under load ({', '.join(sorted(uncorrected))})"
        return ToolReport(Verdict.FAILED, (MEMORY,), reason=text)
    hot = [text for path in sorted(after) if (text := _too_hot(path, after))]
    if hot:
        return ToolReport(Verdict.FAILED, (HEAT,), reason="; ".join(hot[:4]))
    throttled = _risen(_THROTTLED, before, after)
    if throttled:
        text = f"{len(throttled)} counters of the processors say that they slowed down for heat under load"
        return ToolReport(Verdict.DEGRADED, reason=text)
    return ToolReport(Verdict.OK)


def _risen(pattern: re.Pattern[str], before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, int]:
    """Return the growth of each counter that is present before and after."""
    risen = {}
    for path in before.keys() & after.keys():
        match = pattern.fullmatch(path)
        if match is not None and before[path].isdecimal() and after[path].isdecimal():
            name = match[1] if pattern.groups else path
            risen[name] = int(after[path]) - int(before[path])
    return {name: rise for name, rise in risen.items() if rise > 0}


def _too_hot(path: str, after: Mapping[str, str]) -> str:
    match = _TEMPERATURE.fullmatch(path)
    now = _degrees(after[path]) if match else None
    if match is None or now is None:
        return ""
    zone = match[1]
    points = [name.removesuffix("type") for name, kind in after.items() if kind in _LIMITS and name.endswith("_type")]
    limits = [_degrees(after.get(f"{point}temp", "")) for point in points if point.startswith(f"{zone}/trip_point_")]
    lowest = min((limit for limit in limits if limit is not None), default=None)
    if lowest is None or now < lowest:
        return ""
    name = after.get(f"{zone}/type") or zone.rpartition("/")[2]
    return f"{name} is at {now / 1000:g} °C under load, its limit is {lowest / 1000:g} °C"


def _degrees(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) in _BELIEVABLE else None
