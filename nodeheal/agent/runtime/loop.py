"""The main loop of the agent: announce the boot, then read logs, run checks and store events until stopped."""

import logging
import select
from collections.abc import Iterator
from datetime import datetime

from nodeheal.agent.checks.check_runner import CheckRunner
from nodeheal.agent.checks.check_scheduler import CheckChange, CheckScheduler, key_of
from nodeheal.agent.checks.kernel_log import KernelLogCheck
from nodeheal.agent.identity import machine
from nodeheal.agent.identity.hardware_report import HardwareReport
from nodeheal.agent.identity.serials import Serials
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.runtime.eventfd_event import EventfdEvent
from nodeheal.agent.transport.event import EventFactory, NodeBooted, NodeFact
from nodeheal.agent.transport.fault_counts import FaultCounts
from nodeheal.agent.transport.gauges import Sample, training_job
from nodeheal.agent.transport.sender import Sender
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract.names import TRAINING_ALERT
from nodeheal.contract.training import SLOWING_FAULTS, NodeTraining
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

FILE_POLL_SECONDS = 0.1  # half of it is the mean delay of a fault; ten turns a second cost a thousandth of a core
IDLE_SECONDS = 1.0  # how soon a stop is noticed where only the device is read
ADDRESS_PATIENCE_SECONDS = 60.0
STOP_PATIENCE_SECONDS = 3.0
KEEP_SECONDS = 60.0  # maximum age of the checks' stored state after a crash: they then compare over a longer time
# Repeated in case the first was lost: a node that the control plane does not know is not missed when silent.
ANNOUNCE_AGAIN_SECONDS = 86_400.0

logger = logging.getLogger(__name__)


class Agent:
    """One agent on one boot. Do not reuse it after `run` has returned."""

    def __init__(self, config: AgentConfig, spool: Spool, sender: Sender, clock: Clock, looks: CheckRunner) -> None:
        """Raises OSError if the boot id or a kernel log is not readable."""
        self._config, self._spool, self._sender, self._clock, self._looks = config, spool, sender, clock, looks
        boot_id = config.boot_id()
        identity = machine.identity(config)
        saved = spool.state()
        self._event_factory = EventFactory(identity, boot_id)
        self._kernel_log = KernelLogCheck(config.kernel_log, identity, boot_id, clock, saved, config.drills)
        self._started = clock.monotonic()
        uptime = (clock.utc_now() - machine.booted_at(config)).total_seconds()
        self._watch = CheckScheduler(looks.terms, boot_id, saved, uptime, self._started)
        self._kept_at = self._started
        self._announced_at: float | None = None
        self._faults = FaultCounts()
        self._serials = Serials(saved, boot_id)
        self._hardware = HardwareReport(saved, boot_id, self._started)

    def run(self, stop: EventfdEvent) -> None:
        """Work until `stop` is set."""
        self._keep([])  # a crash of the first start must not lose the start position
        self._sender.start()
        logger.info("agent started", extra={"node": self._config.node_id, "boot": self._event_factory.boot_id})
        waiter = select.poll()
        for descriptor in (*self._kernel_log.descriptors(), self._looks.descriptor):
            waiter.register(descriptor, select.POLLIN)
        try:
            while not stop.is_set():
                has_found = self.step()
                if breath := self._kernel_log.breath_seconds:
                    stop.wait(breath)
                elif not has_found:
                    waiter.poll(self._patience_seconds() * 1000)
        finally:
            self._keep([])
            self._sender.stop(STOP_PATIENCE_SECONDS)
            self._kernel_log.close()
            self._looks.close()
        logger.info("agent stopped", extra={"node": self._config.node_id})

    def step(self) -> bool:
        """Read all sources once. True: there was something, and there may be more."""
        kernel_events = self._kernel_log.poll()
        events = self._with_serials([*self._announcement(), *kernel_events, *self._found(), *self._made_of()])
        if events:
            self._keep(events)
            self._faults.add(events, training_job(self._watch.gauges()))
            self._sender.wake()
        elif self._clock.monotonic() - self._kept_at >= KEEP_SECONDS:
            self._keep([])
        return bool(kernel_events)

    def _patience_seconds(self) -> float:
        """Seconds to wait for input: until a file must be read, a check is due, or a stop must be noticed."""
        longest = FILE_POLL_SECONDS if self._kernel_log.must_be_polled else IDLE_SECONDS
        return min(longest, self._watch.due_in(self._clock.monotonic()), self._looks.due_in())

    def say_alive(self) -> None:
        """Send a heartbeat over the bus, where the table accepts none. Safe from any thread."""
        self._spool.put([self._event_factory.alive(self._clock.utc_now())])
        self._sender.wake()

    def report_alert(self, training: NodeTraining) -> None:
        """Send that this run stands still, or that its loss is not a number. Safe from any thread."""
        now = self._clock.utc_now()
        text = f"{training.run} has taken no step after {training.step} for {training.idle_seconds or 0:.0f} s"
        if training.has_lost_its_loss:
            text = f"the loss of {training.run} is not a number at step {training.step}"
        alert = Finding(Family.host, TRAINING_ALERT, training.run, text)
        position = f"{training.run}/{training.step}/{now.isoformat()}"
        self._spool.put([self._event_factory.found(alert, source="progress", position=position, at=now, evidence=text)])
        self._sender.wake()

    def slowed_by(self) -> str | None:
        """Return a fault that slows this node now, by its checks: FAMILY/CODE. Safe from any thread."""
        lasting = {f"{family}/{code}" for family, code, _, _ in self._watch.lasting()}
        return min(lasting & SLOWING_FAULTS, default=None)

    def gauges(self) -> dict[str, float]:
        """Return the checks' measured values. Safe from any thread."""
        return self._watch.gauges()

    def samples(self) -> Iterator[Sample]:
        """Return samples of the agent itself: its checks, the faults found, the events delivered. Safe from any
        thread.
        """
        now, (waiting, used) = self._clock.monotonic(), self._spool.size()
        yield from (*self._watch.samples(now), *self._faults.samples(), *self._sender.samples(now))
        yield Sample("spool_events", waiting)
        yield Sample("spool_bytes", used)
        yield Sample("spool_dropped_total", self._spool.dropped())

    def _with_serials(self, events: list[NodeFact]) -> list[NodeFact]:
        if events:
            self._serials.learn(self._watch.called())
        return [self._serials.named(event) for event in events]

    def _keep(self, events: list[NodeFact]) -> None:
        self._serials.learn(self._watch.called())
        state = {**self._kernel_log.state(), **self._watch.dump(), **self._serials.dump(), **self._hardware.dump()}
        self._spool.put(events, state)
        self._kept_at = self._clock.monotonic()

    def _found(self) -> list[NodeFact]:
        """Return the events of the checks since the last call, and start the checks that are due."""
        now, at = self._clock.monotonic(), self._clock.utc_now()
        self._watch.ask(now, self._looks.ask)
        news = [change for answer in self._looks.answers() for change in self._watch.take(answer, now, at.timestamp())]
        changes = [change for change in news if change.is_over or not self._kernel_log.has_told(change.problem.finding)]
        return [self._event(change, number, at) for number, change in enumerate(changes)]

    def _event(self, news: CheckChange, number: int, at: datetime) -> NodeFact:
        """Create an event. `number` distinguishes simultaneous changes: each is one event, though their texts may be
        equal.
        """
        problem = news.problem
        position = "/".join((repr(news.since), *key_of(problem.finding)))
        if news.is_over:
            return self._event_factory.over(problem.finding, source=news.check, position=position, at=at)
        return self._event_factory.found(
            problem.finding,
            source=news.check,
            position=f"{position}/{number}",
            at=at,
            evidence=problem.evidence or problem.finding.message,
            count=problem.count,
        )

    def _made_of(self) -> list[NodeFact]:
        """Return the report of the hardware where it is due, after the boot is announced."""
        if self._announced_at is None:
            return []
        parts = self._hardware.to_report(self._watch.accelerators(), self._clock.monotonic())
        return [self._event_factory.hardware(machine.product_name(), parts, self._clock.utc_now())] if parts else []

    def _announcement(self) -> list[NodeBooted]:
        """Return the boot announcement, once a day. The first one waits a while for the network, which may start after
        the agent.
        """
        now = self._clock.monotonic()
        if self._announced_at is not None and now - self._announced_at < ANNOUNCE_AGAIN_SECONDS:
            return []
        address = machine.address(self._config)
        if address is None and now - self._started < ADDRESS_PATIENCE_SECONDS:
            return []
        self._announced_at = now
        booted_at, count = machine.booted_at(self._config), machine.accelerators(self._config)
        return [self._event_factory.booted(booted_at, address or "", count, self._clock.utc_now())]
