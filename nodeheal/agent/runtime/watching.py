"""`nodeheal-agent watch`: assembles and runs the agent."""

import gc
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.checks.check_runner import CheckRunner
from nodeheal.agent.checks.registry import chosen
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool, signer_of
from nodeheal.agent.runtime.config import AgentConfig, config_path, load
from nodeheal.agent.runtime.eventfd_event import EventfdEvent
from nodeheal.agent.runtime.loop import STOP_PATIENCE_SECONDS, Agent
from nodeheal.agent.runtime.single_instance import claim
from nodeheal.agent.transport.connect import beside, fallback
from nodeheal.agent.transport.sender import Sender
from nodeheal.domain.faults.catalog import verdicts

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: "argparse.ArgumentParser") -> None:
    """Add no options beyond those of every command."""


def carry_out(arguments: "argparse.Namespace") -> int:
    """Watch until stopped."""
    return watch_as_configured(getattr(arguments, "config", None))


def watch_as_configured(file: str | None) -> int:
    """Watch until stopped, with this configuration file, or the default one."""
    config = load(config_path(file))
    stop = EventfdEvent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return _watch(config, _looks(config), stop)


def _looks(config: AgentConfig) -> CheckRunner:
    """Create the runner and scheduler of all configured checks. Raises ConfigError."""
    checks, place = chosen(config), CheckContext(config, run_tool)
    for check in checks:
        check.load(place)
    return CheckRunner(checks, place)


def _watch(config: AgentConfig, looks: CheckRunner, stop: EventfdEvent) -> int:
    claim(Path(config.state_dir))
    verdicts()  # imported now: the disk may fail before they are needed
    clock, spool = Clock(), open_spool(config)
    signer = signer_of(config, clock, may_rotate=True)
    bus, by_way_of_sns = event_bus(config, clock, signer), fallback(config, clock, signer)
    sender = Sender(spool, bus, clock, by_way_of_sns, config.fallback_seconds)
    agent = Agent(config, spool, sender, clock, looks)
    threads = beside(
        config, clock, signer, agent.say_alive, agent.report_alert, agent.slowed_by, agent.gauges, agent.samples
    )
    gc.freeze()  # objects that are never changed again stay shared with the check processes
    for thread in threads:
        thread.start()
    try:
        agent.run(stop)
    finally:
        for thread in threads:
            thread.stop(STOP_PATIENCE_SECONDS)
        spool.close()
    return 0
