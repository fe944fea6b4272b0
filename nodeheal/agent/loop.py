"""The agent's life: say that the node is up, then read and keep until told to stop."""

import logging
import select
import threading

from nodeheal.agent import machine
from nodeheal.agent.checks.kernel_log import KernelLogCheck
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.event import NodeBooted, NodeFact, Speaker
from nodeheal.agent.sender import Sender
from nodeheal.agent.spool import Spool

FILE_POLL_SECONDS = 0.1  # half of it is the mean delay of a fault; ten looks a second cost a thousandth of a core
IDLE_SECONDS = 1.0  # how soon a stop is noticed where only the device is read
ADDRESS_PATIENCE_SECONDS = 60.0
STOP_PATIENCE_SECONDS = 3.0
# Said again, lest the first one was lost on its way: a node that nobody knows of is missed by nobody.
ANNOUNCE_AGAIN_SECONDS = 86_400.0

logger = logging.getLogger(__name__)


class Agent:
    """One agent on one boot. Not to be reused after `run` has returned."""

    def __init__(self, config: AgentConfig, spool: Spool, sender: Sender, clock: Clock) -> None:
        """Raises OSError if the boot id or a kernel log cannot be read."""
        self._config = config
        self._spool = spool
        self._sender = sender
        self._clock = clock
        boot_id = config.boot_id()
        identity = machine.identity(config)
        self._speaker = Speaker(identity, boot_id)
        self._kernel_log = KernelLogCheck(config.kernel_log, identity, boot_id, clock, spool.state(), config.drills)
        self._started = clock.monotonic()
        self._announced_at: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""
        self._keep([])  # where a first start begins to read must survive a crash of that start
        self._sender.start()
        logger.info("agent started", extra={"node": self._config.node_id, "boot": self._speaker.boot_id})
        waiter = select.poll()
        for descriptor in self._kernel_log.descriptors():
            waiter.register(descriptor, select.POLLIN)
        wait_seconds = FILE_POLL_SECONDS if self._kernel_log.must_be_polled else IDLE_SECONDS
        while not stop.is_set():
            if not self.step():
                waiter.poll(wait_seconds * 1000)
        self._keep([])
        self._sender.stop(STOP_PATIENCE_SECONDS)
        self._kernel_log.close()
        logger.info("agent stopped", extra={"node": self._config.node_id})

    def step(self) -> bool:
        """One look at everything. True: there was something, and there may be more."""
        found = self._kernel_log.poll()
        events = [*self._announcement(), *found]
        if events:
            self._keep(events)
            self._sender.wake()
        return bool(found)

    def say_alive(self) -> None:
        """A sign of life over the bus, for where none can be given otherwise. From any thread."""
        self._spool.put([self._speaker.alive(self._clock.utc_now())])
        self._sender.wake()

    def _keep(self, events: list[NodeFact]) -> None:
        self._spool.put(events, self._kernel_log.state())

    def _announcement(self) -> list[NodeBooted]:
        """That the node is up, once a day. It waits a while for the network, which may come up after the agent."""
        now = self._clock.monotonic()
        if self._announced_at is not None and now - self._announced_at < ANNOUNCE_AGAIN_SECONDS:
            return []
        address = machine.address(self._config)
        if address is None and now - self._started < ADDRESS_PATIENCE_SECONDS:
            return []
        self._announced_at = now
        booted_at, count = machine.booted_at(self._config), machine.accelerators(self._config)
        return [self._speaker.booted(booted_at, address or "", count, self._clock.utc_now())]
