"""Carries events from the spool to the bus, for as long as it takes."""

import logging
import math
import threading
from collections.abc import Iterator

from nodeheal.agent.bus import ENTRIES_A_CALL, BusUnavailable, EventBus, batch
from nodeheal.agent.clock import Clock
from nodeheal.agent.eventfd_event import EventfdEvent
from nodeheal.agent.fallback import Fallback
from nodeheal.agent.forking import at_work
from nodeheal.agent.gauges import Sample
from nodeheal.agent.jitter import between
from nodeheal.agent.spool import Spool

BACKOFF_FIRST_SECONDS = 0.25
BACKOFF_LIMIT_SECONDS = 60.0
# `nodeheal-agent run diag` is another process: what it could not deliver is found by looking.
LOOK_SECONDS = 5.0
COMPLAINT_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Sender(threading.Thread):
    """Delivers every event at least once, oldest first, and forgets none that was not accepted or refused for good."""

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
        """There is something new in the spool."""
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
        """What was delivered since the start. From any thread."""
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
                self._stopping.wait(delay)  # news do not cut a backoff short: they would fail as well
            else:
                self._news.wait(LOOK_SECONDS)

    def _sent_or_later(self) -> float:
        """As `send_all`. A thread that ended would leave a node that gives heartbeats and tells of no fault."""
        try:
            return self.send_all()
        except Exception as error:
            if not self._failures:
                logger.exception("the sender is broken; it tries again")
            return self._later(f"{type(error).__name__}: {error}", is_refusal=False)

    def send_all(self) -> float:
        """Empty the spool; the seconds to wait before the next try if that failed, else 0."""
        while not self._stopping.is_set():
            entries = batch(self._spool.oldest(ENTRIES_A_CALL))
            if not entries:
                break
            try:
                receipt = self._bus.put(entries)
            except BusUnavailable as error:
                return self._back_off(str(error), error.is_refusal)
            for event_id, reason in receipt.hopeless:
                logger.error("the bus refuses an event for good; dropped", extra={"event": event_id, "why": reason})
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
            message = "the bus refuses this node; events are kept" if is_refusal else "the bus is out of reach"
            logger.error(message, extra={"why": reason, "failures": self._failures})
        ceiling: float = min(BACKOFF_LIMIT_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** min(self._failures, 16))
        # Half of it is chance, so that a fleet that lost the same network does not come back in step.
        return ceiling * between(0.5, 1.0)

    def _go_around(self, now: float) -> None:
        """After so long, what is grave goes by way of SNS as well."""
        self._failing_since = now if self._failing_since is None else self._failing_since
        if self._fallback is not None and now - self._failing_since >= self._fallback_seconds:
            self._fallback.tell(self._spool)

    def _recover(self) -> None:
        if self._failures:
            logger.info("the bus accepts events again", extra={"failures": self._failures})
            if self._fallback is not None:
                self._fallback.begin_anew()
        self._failures, self._complained_at, self._failing_since = 0, None, None
