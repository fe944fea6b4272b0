"""Delivers events to functions: at least once, out of order, late, or never.

What waits in a queue (health events, notifications) comes until its function has taken it. A wakeup that fails three
times is lost: deadlines and the sweep make up for it. What EventBridge cannot deliver ends in a dead-letter queue.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nodeheal.domain.errors import NotAccepted
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.hazards import Died
from nodeheal.simulation.outages import AwsService, Outages
from nodeheal.simulation.setting import Cloud
from nodeheal.simulation.trace import Trace


@dataclass(frozen=True)
class Route:
    """A delivery path: seconds before the retry after the first, the second, … failed attempt.

    `is_endless`: the last of them holds for every further one.
    """

    name: str
    again_after: tuple[float, ...]
    is_endless: bool = False

    def seconds_after(self, failed: int) -> float | None:
        """Return the seconds before the next attempt, after this number of failed ones; None: there is none."""
        if failed <= len(self.again_after):
            return self.again_after[failed - 1]
        return self.again_after[-1] if self.is_endless else None


# stacks/state.py: visible again after 6 times the function's timeout, for two days.
QUEUE = Route("queue", (180.0,), is_endless=True)
# Lambda, asynchronous: two more attempts, a minute and two after. A throttled one is no attempt: Lambda tries it again,
# up to five minutes later, until the event is as old as the rule lets it be.
RULE = Route("rule", (60.0, 120.0))
THROTTLED_SECONDS = 300.0
REDRIVE_SECONDS = 6 * 3_600.0  # until a human has handled the dead-letter queue (median)
Run = Callable[[str, Callable[[], object]], object]


class FunctionThrottled(NotAccepted):
    """Lambda did not start the function."""


class Bus:
    """Delivers events. `run` runs a function; if it raises, the event is delivered again."""

    def __init__(self, agenda: Agenda, chance: Chance, trace: Trace, cloud: Cloud, run: Run, outages: Outages) -> None:
        self._agenda, self._trace, self._cloud, self._run, self._outages = agenda, trace, cloud, run, outages
        self._stream = chance.of("bus")
        self.sent = 0
        self.dead = 0
        self.dropped = 0  # wakeups that failed three times
        self.in_flight = 0
        self.when_something_is_lost: Callable[[], None] = lambda: None

    def send(self, function: str, about: str, take: Callable[[], object], route: Route = RULE) -> None:
        """Deliver the event to the function, after some time."""
        self.sent += 1
        draw, cloud = self._stream.random, self._cloud
        if draw() < cloud.lost:
            self._bury(function, about, take, route)
            return
        self._deliver(function, about, take, route)
        if draw() < cloud.duplicated:
            self._trace.tell("comes twice", about, function)
            self._deliver(function, about, take, route)

    def _deliver(self, function: str, about: str, take: Callable[[], object], route: Route) -> None:
        # Agents and AWS keep what the bus does not take, and send it when it does.
        delay = lognormal(self._stream, 0.3, 0.5) + self._outages.seconds_left(AwsService.bus)
        if self._stream.random() < self._cloud.late:
            delay += self._stream.uniform(0, self._cloud.late_seconds)
            self._trace.tell("comes late", about, f"{function} in {delay:.0f} s")
        self.in_flight += 1
        self._agenda.after(delay, lambda: self._try(function, about, take, route, 0))

    def _try(self, function: str, about: str, take: Callable[[], object], route: Route, tried: int) -> None:
        try:
            self._run(function, take)
        except (Exception, Died) as error:
            self._trace.tell("function fails", about, f"{function}: {type(error).__name__} {error}")
            self.when_something_is_lost()
            is_attempt = route.is_endless or not isinstance(error, FunctionThrottled)
            failed = tried + is_attempt
            again = route.seconds_after(failed) if is_attempt else THROTTLED_SECONDS
            if again is not None:
                self._agenda.after(again, lambda: self._try(function, about, take, route, failed))
                return
            self._trace.tell("dropped", about, function)
            self.dropped += 1
        self.in_flight -= 1

    def _bury(self, function: str, about: str, take: Callable[[], object], route: Route) -> None:
        """Move an event to the dead-letter queue, whose alarm calls a human, who redrives it."""
        self.dead += 1
        self._trace.tell("dead letter", about, function)
        self.when_something_is_lost()
        self.in_flight += 1
        later = lognormal(self._stream, REDRIVE_SECONDS, 0.5)
        self._agenda.after(later, lambda: self._try(function, about, take, route, 0))
