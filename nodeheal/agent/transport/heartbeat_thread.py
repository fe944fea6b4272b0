"""Writes the node's heartbeats at their interval, in a thread of its own."""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.eventfd_event import EventfdEvent
from nodeheal.agent.runtime.forking import at_work
from nodeheal.agent.runtime.jitter import between
from nodeheal.agent.runtime.log_once import LogOnce
from nodeheal.agent.transport.gauges import Sample
from nodeheal.agent.transport.heartbeat_client import HeartbeatContent, HeartbeatItem, HeartbeatRejected, PublicKey
from nodeheal.agent.transport.training_samples import training_samples
from nodeheal.contract.training import NodeTraining

BACKOFF_FIRST_SECONDS = 1.0
# A table that is out of reach for so long may stay so: the network may allow only the bus.
PATIENCE_SECONDS = 120.0
_EARLIEST = 0.9  # of the interval
ALERT_LOOK_SECONDS = 5.0
REPORTED_AT_LOOK = 3  # by then the agents of the run's other nodes have looked, and have been heard

logger = logging.getLogger(__name__)


class HeartbeatThread(threading.Thread):
    """Writes one heartbeat each interval. While the table refuses them, or is out of reach for long, `instead` sends
    them over the bus, as older agents do. So a node with an outdated role or network does not look silent.

    Where training stands still, or its loss is not a number, a heartbeat says so at once, and `report_alert` ten
    seconds later: by then the other nodes of the run have said so, too.
    """

    def __init__(
        self,
        item: HeartbeatItem,
        key: Callable[[], PublicKey],
        boot_id: str,
        every_seconds: float,
        clock: Clock,
        instead: Callable[[], None],
        trainings: Callable[[], Sequence[NodeTraining]] = tuple,
        alerts: Callable[[], Sequence[NodeTraining]] = tuple,
        report_alert: Callable[[NodeTraining], None] = lambda training: None,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._item = item
        self._key = key
        self._boot_id = boot_id
        self._every = every_seconds
        self._clock = clock
        self._instead = instead
        self._trainings = trainings
        self._alerts = alerts
        self._report_alert = report_alert
        self._alerted: dict[str, int] = {}  # how many looks in a row have met an alert of the run
        self._stopping = EventfdEvent()
        self._failures = 0
        self._reasons = LogOnce()
        self._failing_since: float | None = None
        self._said_instead_at = -math.inf
        self._accepted = self._failed = 0
        self._taken_at: float | None = None
        self._last_look: tuple[float, Sequence[NodeTraining]] = (0.0, ())  # replaced whole: another thread reads it

    def samples(self) -> Iterator[Sample]:
        """Return how many heartbeats the table accepted since the start, when the last one was, and how the runs train
        by the last look, also where the table did not take it. Safe from any thread.
        """
        yield Sample("heartbeats_total", self._accepted)
        yield Sample("heartbeat_failures_total", self._failed)
        if self._taken_at is not None:
            yield Sample("last_heartbeat_age_seconds", self._clock.monotonic() - self._taken_at)
        at, trainings = self._last_look
        yield from training_samples(trainings, self._clock.monotonic() - at)

    def run(self) -> None:
        """Write heartbeats until stopped. The first is at a random point of the interval, since a whole rack starts at
        once.
        """
        delay = between(0.0, self._every)
        while not self._stopping.wait(min(delay, ALERT_LOOK_SECONDS)):
            delay -= ALERT_LOOK_SECONDS
            with at_work():
                if self.has_new_alerts() or delay <= 0.0:
                    delay = self._send_or_retry()

    def stop(self, patience_seconds: float) -> None:
        """End after the call in progress."""
        self._stopping.set()
        self.join(patience_seconds)
        self._item.close()

    def _send_or_retry(self) -> float:
        """Call `heartbeat` and survive any exception: a dead thread would make a healthy node look dead."""
        try:
            return self.heartbeat()
        except Exception as error:
            if self._reasons.is_news(repr(error)):
                logger.exception("heartbeats fail for an unexpected reason; retrying")
            self._failures += 1
            self._failed += 1
            return self._soon()

    def heartbeat(self) -> float:
        """Write one heartbeat; returns the seconds to wait before the next."""
        trainings = self._trainings()
        self._last_look = (self._clock.monotonic(), trainings)
        try:
            wanted = self._item.write(
                HeartbeatContent(self._boot_id, self._clock.utc_now().timestamp(), self._every, self._key(), trainings)
            )
        except HeartbeatRejected as error:
            return self._fail(error)
        self._accepted, self._taken_at = self._accepted + 1, self._clock.monotonic()
        if self._failures:
            logger.info("heartbeats are accepted again", extra={"failures": self._failures})
        self._failures, self._failing_since = 0, None
        self._reasons.forget()
        if wanted is not None and wanted != self._every:
            logger.info("the control plane has requested another heartbeat interval", extra={"seconds": wanted})
            self._every = wanted
        return self._soon()

    def has_new_alerts(self) -> bool:
        """Return whether a run has an alert that it had not at the last look, and report each that it had, once.
        Survives any exception, as `heartbeat` does.
        """
        known, self._alerted = self._alerted, {}
        try:
            for training in self._alerts():
                looks = known.get(training.run, 0) + 1
                if looks == REPORTED_AT_LOOK:
                    self._report_alert(training)  # one that raises is new again at the next look
                self._alerted[training.run] = looks
        except Exception:
            logger.exception("an alert could not be reported")
        return any(run not in known for run in self._alerted)

    def _fail(self, error: HeartbeatRejected) -> float:
        self._failures += 1
        self._failed += 1
        if self._reasons.is_news(error):
            why = "refused" if error.is_refusal else "not accepted: the table is out of reach"
            logger.error(f"heartbeats are {why}; if this lasts, they go over the bus", extra={"why": error})
        self._say_instead(error.is_refusal)
        if error.is_refusal:
            return self._soon()
        # Half of the delay is random, so that a fleet that lost the same network does not retry in step.
        ceiling: float = min(self._every, BACKOFF_FIRST_SECONDS * 2 ** min(self._failures, 16))
        return ceiling * between(0.5, 1.0)

    def _say_instead(self, is_refused: bool) -> None:
        """Send the heartbeat over the bus, at most once an interval. An outage of the table must not flood the bus at
        once.
        """
        now = self._clock.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        is_time = is_refused or now - self._failing_since >= PATIENCE_SECONDS
        if is_time and now - self._said_instead_at >= self._every * _EARLIEST:
            self._said_instead_at = now
            self._instead()

    def _soon(self) -> float:
        """Return a random delay, never later than promised."""
        return self._every * between(_EARLIEST, 1.0)
