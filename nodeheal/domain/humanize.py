"""Numbers and durations in sentences."""

from datetime import timedelta

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))
_TENTHS_BELOW = 10  # seconds


def counted(number: int, singular: str, many: str = "") -> str:
    """Returns `1 incident`, `2 incidents`. `many`: another plural, as in `counted(n, "node waits", "nodes wait")`."""
    return f"{number} {singular if number == 1 else many or f'{singular}s'}"


def in_hours(seconds: int) -> str:
    """Returns a window: `in 24 h`."""
    return f"in {seconds / 3_600:g} h"


def all_of(number: int, whose: str = "") -> str:
    """Returns `both`, `all 3`, for several; `whose` stands in between: `both its`, `all its 3`."""
    return " ".join(filter(None, ["both" if number == 2 else "all", whose, "" if number == 2 else str(number)]))


def in_percent(share: float | None) -> str:
    """Return a share that is given in percent as text; `?` where it is not known."""
    return "?" if share is None else f"{share:g} %"


def lasting(length: timedelta | float, *, is_short: bool = False) -> str:
    """Returns a duration, given as such or in seconds: `1.5 s`, `45 s`, `3 min 20 s`, `5 h 10 min`, `2 d 3 h`.

    `is_short`: for a column of a table, one unit alone, as kubectl has it: `119s`, `12m`, `5h`, `3d`.
    """
    seconds = max(0.0, length.total_seconds() if isinstance(length, timedelta) else length)
    if is_short:
        unit, size = next((unit for unit in _UNITS if seconds >= 2 * unit[1]), ("s", 1))
        return f"{int(seconds // size)}{unit[0]}"
    if seconds < _TENTHS_BELOW:
        return f"{round(seconds, 1):g} s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (*_UNITS, ("s", 1)):
        number, left = divmod(left, size)
        parts += [f"{number} {unit}"] if number or parts else []
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))
