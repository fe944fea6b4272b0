"""Delivers events from the spool to the bus, with retries."""

import logging
import math
import threading
from collections.abc import Iterator

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.eventfd_event import EventfdEvent
from nodeheal.agent.runtime.forking import at_work
from nodeheal.agent.runtime.jitter import between
from nodeheal.agent.transport.bus import ENTRIES_A_CALL, BusUnavailable, EventBus, batch
from nodeheal.agent.transport.fallback import Fallback
from nodeheal.agent.transport.gauges import Sample
from nodeheal.agent.transport.spool import Spool

BACKOFF_FIRST_SECONDS = 0.25
BACKOFF_LIMIT_SECONDS = 60.0
# `nodeheal-agent run diag` is another process: only a look into the spool finds what it could not deliver.
LOOK_SECONDS = 5.0
COMPLAINT_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Sender(threading.Thread):
    """Delivers every event at least once, oldest first. An event leaves the spool only when the bus accepted it or
    refused it for good.
    """

    def __init__(
        self,
        spool: Spool,
        bus: EventBus,
        clock: Clock,
        fallback: Fallback | None = None,
        fallback_seconds: float = math.inf,
    ) -> None:
        super().__init__(name="sender", daemon=True)
        self._spool = spool
        self._bus = bus
        self._clock = clock
        self._news = EventfdEvent()
        self._stopping = EventfdEvent()
        self._fallback = fallback
        self._fallback_seconds = fallback_seconds
        self._failures = 0
        self._failing_since: float | None = None
        self._complained_at: float | None = None
        self._sent = self._refused = self._failed_calls = 0
        self._sent_at: float | None = None

    def wake(self) -> None:
        """Signal that the spool has a new event."""
        self._news.set()

    def stop(self, patience_seconds: float) -> None:
        """End after the call in progress."""
        self._stopping.set()
        self._news.set()
        self.join(patience_seconds)
        self._bus.close()
        if self._fallback is not None:
            self._fallback.close()

    def samples(self, now: float) -> Iterator[Sample]:
        """Return what was delivered since the start. Safe from any thread."""
        yield Sample("events_sent_total", self._sent)
        yield Sample("events_refused_total", self._refused)
        yield Sample("publish_failures_total", self._failed_calls)
        if self._sent_at is not None:
            yield Sample("last_publish_age_seconds", now - self._sent_at)

    def run(self) -> None:
        """Send until stopped."""
        while not self._stopping.is_set():
            self._news.clear()
            with at_work():
                delay = self._sent_or_later()
            if delay:
                self._stopping.wait(delay)  # new events do not shorten a backoff: they would fail as well
            else:
                self._news.wait(LOOK_SECONDS)

    def _sent_or_later(self) -> float:
        """Call `send_all` and survive any exception: a node with a dead sender would send heartbeats but no faults."""
        try:
            return self.send_all()
        except Exception as error:
            if not self._failures:
                logger.exception("sending fails for an unexpected reason; retrying")
            return self._later(f"{type(error).__name__}: {error}", is_refusal=False)

    def send_all(self) -> float:
        """Empty the spool. Returns the seconds to wait before the next try if that failed, else 0."""
        while not self._stopping.is_set():
            entries = batch(self._spool.oldest(ENTRIES_A_CALL))
            if not entries:
                break
            try:
                receipt = self._bus.put(entries)
            except BusUnavailable as error:
                return self._back_off(str(error), error.is_refusal)
            for event_id, reason in receipt.hopeless:
                logger.error(
                    "the bus refuses an event for good; it is dropped", extra={"event": event_id, "why": reason}
                )
            done = [*receipt.accepted, *(event_id for event_id, _ in receipt.hopeless)]
            self._spool.forget(done)
            self._note(len(receipt.accepted), len(receipt.hopeless))
            if receipt.later:
                why = f"{len(receipt.later)} of {len(entries)} entries were not accepted: {receipt.why_later}"
                return self._back_off(why, receipt.is_refusal)
            self._recover()
        return 0.0

    def _note(self, sent: int, refused: int) -> None:
        self._sent += sent
        self._refused += refused
        if sent:
            self._sent_at = self._clock.monotonic()

    def _back_off(self, reason: str, is_refusal: bool) -> float:
        delay = self._later(reason, is_refusal)
        self._go_around(self._clock.monotonic())
        return delay

    def _later(self, reason: str, is_refusal: bool) -> float:
        self._failures += 1
        self._failed_calls += 1
        now = self._clock.monotonic()
        if self._complained_at is None or now - self._complained_at >= COMPLAINT_SECONDS:
            self._complained_at = now
            message = "the bus refuses this node's events; they are kept" if is_refusal else "the bus is out of reach"
            logger.error(message, extra={"why": reason, "failures": self._failures})
        ceiling: float = min(BACKOFF_LIMIT_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** min(self._failures, 16))
        # Half of the delay is random, so that a fleet that lost the same network does not retry in step.
        return ceiling * between(0.5, 1.0)

    def _go_around(self, now: float) -> None:
        """Publish grave findings to SNS after a long outage of the bus."""
        self._failing_since = now if self._failing_since is None else self._failing_since
        if self._fallback is not None and now - self._failing_since >= self._fallback_seconds:
            self._fallback.tell(self._spool)

    def _recover(self) -> None:
        if self._failures:
            logger.info("the bus accepts events again", extra={"failures": self._failures})
            if self._fallback is not None:
                self._fallback.begin_anew()
        self._failures, self._complained_at, self._failing_since = 0, None, None
