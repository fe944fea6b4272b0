"""The command `nodeheal-agent`."""

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from nodeheal import __version__
from nodeheal.agent import config as configuration
from nodeheal.agent.bus import EventBus, endpoint
from nodeheal.agent.clock import Clock
from nodeheal.agent.config import AgentConfig, ConfigError
from nodeheal.agent.credentials import CredentialChain
from nodeheal.agent.diagnose import DEADLINE_SECONDS, DiagnoseOrder, diagnose
from nodeheal.agent.log import log_to_stderr
from nodeheal.agent.loop import Agent
from nodeheal.agent.sender import Sender
from nodeheal.agent.spool import Spool

EXIT_CANNOT_START = 2
EXIT_TERMINATED = 128 + signal.SIGTERM

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = _parser().parse_args(argv)
    log_to_stderr()
    try:
        config = configuration.load(configuration.config_path(arguments.config))
        return _diagnose(config, arguments) if arguments.command == "diagnose" else _run(config)
    except (ConfigError, OSError) as error:
        logger.error("nodeheal-agent cannot start", extra={"why": error})
        return EXIT_CANNOT_START


def _run(config: AgentConfig) -> int:
    clock = Clock()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spool = _spool(config)
    Agent(config, spool, Sender(spool, _bus(config, clock), clock), clock).run(stop)
    spool.close()
    return 0


def _diagnose(config: AgentConfig, arguments: argparse.Namespace) -> int:
    # An exit like any other, so that DCGM does not outlive the command that asked for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    clock = Clock()
    order = DiagnoseOrder(
        arguments.level, arguments.request_id, arguments.boot_id, arguments.expires_at, arguments.deadline_seconds
    )
    return diagnose(order, config, _spool(config), _bus(config, clock), clock)


def _spool(config: AgentConfig) -> Spool:
    return Spool(Path(config.state_dir), config.spool_mib)


def _bus(config: AgentConfig, clock: Clock) -> EventBus:
    url = config.endpoint_url or endpoint(config.region)
    return EventBus(config.bus, config.region, url, CredentialChain(clock), clock)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nodeheal-agent", description="Reports facts about this node to nodeheal.")
    parser.add_argument("--version", action="version", version=f"nodeheal-agent {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", metavar="FILE", help=f"default: ${configuration.ENV_CONFIG}, else /etc/nodeheal")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", parents=[common], help="watch this node until stopped")
    order = commands.add_parser("diagnose", parents=[common], help="run DCGM diagnostics once and report the verdict")
    order.add_argument("--level", type=int, choices=sorted(DEADLINE_SECONDS), required=True)
    order.add_argument("--request-id", required=True, help="echoed in the report")
    order.add_argument("--boot-id", required=True, help="the boot that the order is meant for; another one refuses it")
    order.add_argument("--expires-at", type=float, required=True, help="epoch seconds; refused from then on")
    order.add_argument("--deadline-seconds", type=float, help="how long DCGM may take; default: by level")
    return parser


if __name__ == "__main__":
    sys.exit(main())
