"""What a diagnostic measured, by name: numbers that are compared with those of the node's last good run. Pure.

A name ends in its unit, and the unit says which way is better: less heat, more bandwidth.
"""

import re
from collections.abc import Mapping

LESS_IS_BETTER = ("_celsius", "_us")
MEASURES = 64
_NUMBER = r"(\d{1,7}(?:\.\d{1,6})?)"
_PCIE = re.compile(rf"(GPU to Host|Host to GPU|bidirectional) bandwidth:\s{{0,8}}{_NUMBER} GB/s")
_NCCOM = re.compile(rf"Avg bus bandwidth:\s{{0,20}}{_NUMBER} ?GB/s")
# A line of stress-ng's list of thermal zones: the zone's name and its heat, the same again in Kelvin.
_HEAT = re.compile(rf"\s{_NUMBER} (?:°)?C \({_NUMBER} K\)")


def dcgm_bandwidths(output: str) -> dict[str, float]:
    """The slowest GPU's PCIe bandwidths, where `dcgmi diag` tells them (level 2 and up; not every version does)."""
    found: dict[str, float] = {}
    for way, number in _PCIE.findall(output.replace("\\t", "\t")):
        name = f"pcie_{way.lower().replace(' ', '_')}_gb_per_s"
        found[name] = min(float(number), found.get(name, float(number)))
    return found


def collective_bandwidth(output: str) -> dict[str, float]:
    """What nccom-test says of an all-reduce over the node's own cores."""
    found = _NCCOM.findall(output)
    return {"neuron_all_reduce_gb_per_s": float(found[-1])} if found else {}


def heat(output: str) -> dict[str, float]:
    """The hottest thermal zone that stress-ng lists."""
    found = [float(celsius) for celsius, _ in _HEAT.findall(output)]
    return {"hottest_zone_celsius": max(found)} if found else {}


def worse_by_percent(name: str, now: float, before: float) -> float:
    """How much worse a number is than it was, in percent; negative where it is better."""
    if before <= 0:
        return 0.0
    change = (now - before) / before * 100
    return change if name.endswith(LESS_IS_BETTER) else -change


def regressions(now: Mapping[str, float], before: Mapping[str, float], percent: float) -> list[str]:
    """In words, what has become worse by more than so much. What was not measured both times says nothing."""
    told = []
    for name in sorted(now.keys() & before.keys()):
        worse = worse_by_percent(name, now[name], before[name])
        if worse > percent:
            told.append(f"{name} is {now[name]:g}, {worse:.0f} % worse than {before[name]:g} in its last good run")
    return told
