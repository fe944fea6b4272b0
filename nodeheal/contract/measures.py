"""What a diagnostic measured, by name: numbers that are compared with those of the node's last good run. Pure.

A name ends in its unit, and the unit says which way is better: less heat, more bandwidth.
"""

from collections.abc import Mapping

LESS_IS_BETTER = ("_celsius", "_us")
MEASURES = 64


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
