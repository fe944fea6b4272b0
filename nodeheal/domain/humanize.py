"""Numbers and durations in sentences."""

from datetime import timedelta


def counted(number: int, one: str, many: str = "") -> str:
    """Returns `1 incident`, `2 incidents`. `many`: another plural, as in `counted(n, "node waits", "nodes wait")`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def lasting(length: timedelta) -> str:
    """Returns `45 s`, `3 min 20 s`, `5 h 10 min`, `2 d 3 h`."""
    minutes, seconds = divmod(max(0, round(length.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
