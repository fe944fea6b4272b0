"""A virtual clock with one queue of events. Nothing here reads the time of the machine that it runs on."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
Happening = Callable[[], None]


class Due:
    """A scheduled event, unless it is cancelled before."""

    __slots__ = ("at", "happening")

    def __init__(self, at: float, happening: Happening) -> None:
        self.at = at
        self.happening: Happening | None = happening

    def call_off(self) -> None:
        """Cancel the event."""
        self.happening = None


class Agenda:
    """The queue of events, in seconds since EPOCH. Of two at the same time, the one scheduled first runs first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Due]] = []
        self._put = 0
        self._read_at = -1.0
        self._read = EPOCH

    def clock(self) -> datetime:
        """Return the simulated time, for services."""
        if self._read_at != self.now:
            self._read_at, self._read = self.now, EPOCH + timedelta(seconds=self.now)
        return self._read

    def at(self, seconds: float, happening: Happening) -> Due:
        """Schedule an event at this time, or at once where that is past."""
        due = Due(max(seconds, self.now), happening)
        self._put += 1
        heappush(self._queue, (due.at, self._put, due))
        return due

    def after(self, seconds: float, happening: Happening) -> Due:
        """Schedule an event this much later."""
        return self.at(self.now + seconds, happening)

    def next_at(self) -> float | None:
        """Return the time of the next event; None: there is none."""
        while self._queue and self._queue[0][2].happening is None:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def step(self) -> bool:
        """Run the next event. False: there is none."""
        if self.next_at() is None:
            return False
        at, _, due = heappop(self._queue)
        self.now = max(self.now, at)
        happening, due.happening = due.happening, None
        if happening is not None:
            happening()
        return True

    def run(self, until: float) -> None:
        """Run all events that are due by then."""
        while (at := self.next_at()) is not None and at <= until:
            self.step()
        self.now = max(self.now, until)


def seconds_of(moment: datetime) -> float:
    """Return a moment in seconds since EPOCH."""
    return (moment - EPOCH).total_seconds()
