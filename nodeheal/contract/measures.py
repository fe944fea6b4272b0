"""Compares the measurements of a diagnosis with those of the node's last good run, by name. Pure.

A name ends in its unit, and the unit determines which direction is better: less heat, more bandwidth.
"""

from collections.abc import Mapping

LESS_IS_BETTER = ("_celsius", "_us")
MEASURES = 64


def worse_by_percent(name: str, now: float, before: float) -> float:
    """Return by how many percent a number is worse than before; negative where it is better."""
    if before <= 0:
        return 0.0
    change = (now - before) / before * 100
    return change if name.endswith(LESS_IS_BETTER) else -change


def regressions(now: Mapping[str, float], before: Mapping[str, float], percent: float) -> list[str]:
    """Describe what is worse by more than this percentage. Numbers that were not measured both times are ignored."""
    lines = []
    for name in sorted(now.keys() & before.keys()):
        worse = worse_by_percent(name, now[name], before[name])
        if worse > percent:
            lines.append(f"{name} is {now[name]:g}, {worse:.0f} % worse than {before[name]:g} in its last good run")
    return lines
