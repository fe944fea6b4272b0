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
from nodeheal.agent.clock import Clock
from nodeheal.agent.compose import event_bus, open_spool
from nodeheal.agent.config import AgentConfig, ConfigError
from nodeheal.agent.copy_credentials import SOURCE, copy_credentials
from nodeheal.agent.log import log_to_stderr
from nodeheal.agent.loop import Agent
from nodeheal.agent.sender import Sender
from nodeheal.agent.units import INSTALLED_IN, write_units

EXIT_CANNOT_START = 2

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    given = sys.argv[1:] if argv is None else list(argv)
    arguments = _parser(given[:1] == ["run"]).parse_args(given)
    log_to_stderr()
    try:
        if arguments.command in _WITHOUT_CONFIG:
            return _WITHOUT_CONFIG[arguments.command](arguments)
        config = configuration.load(configuration.config_path(arguments.config))
        return _COMMANDS[arguments.command](config, arguments)
    except (ConfigError, OSError) as error:
        logger.error("nodeheal-agent cannot start", extra={"why": error})
        return EXIT_CANNOT_START


def _watch(config: AgentConfig, arguments: argparse.Namespace) -> int:
    clock = Clock()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spool = open_spool(config)
    Agent(config, spool, Sender(spool, event_bus(config, clock), clock), clock).run(stop)
    spool.close()
    return 0


def _run(config: AgentConfig, arguments: argparse.Namespace) -> int:
    from nodeheal.agent.orders import carry_out

    return carry_out(config, arguments)


def _copy_credentials(arguments: argparse.Namespace) -> int:
    return copy_credentials(arguments.source, arguments.to, arguments.owner)


def _units(arguments: argparse.Namespace) -> int:
    write_units(arguments.to, arguments.programs)
    return 0


def _config(config: AgentConfig, arguments: argparse.Namespace) -> int:
    sys.stdout.write(f"the configuration of {config.node_id} can be used\n")
    return 0


_COMMANDS = {"watch": _watch, "run": _run, "config": _config}
_WITHOUT_CONFIG = {"copy-credentials": _copy_credentials, "units": _units}


def _parser(with_orders: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nodeheal-agent", description="Reports facts about this node to nodeheal.")
    parser.add_argument("--version", action="version", version=f"nodeheal-agent {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    where = f"default: ${configuration.ENV_CONFIG}, else {configuration.DEFAULT_PATH}"
    common.add_argument("--config", metavar="FILE", help=where)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("watch", parents=[common], help="watch this node until stopped")
    run = commands.add_parser("run", help="carry out one order, as the SSM documents do")
    if with_orders:
        from nodeheal.agent.orders import add_orders  # 2 MiB that the agent that watches has no use for

        add_orders(run, [common])
    commands.add_parser("config", parents=[common], help="say whether the configuration can be used")
    _add_setup(commands)
    return parser


def _add_setup(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    copy = commands.add_parser("copy-credentials", help="hand root's AWS credentials to the agent's user")
    copy.add_argument("--source", type=Path, default=SOURCE, help=f"default: {SOURCE}")
    copy.add_argument("--to", type=Path, required=True, help="the copy; nothing but the keys of the default profile")
    copy.add_argument("--owner", required=True, help="the only user who may read it")
    units = commands.add_parser("units", help="write the units of systemd")
    units.add_argument("--to", type=Path, required=True, help="such as /etc/systemd/system")
    units.add_argument("--programs", default=INSTALLED_IN, help=f"where nodeheal-agent is; default: {INSTALLED_IN}")


if __name__ == "__main__":
    sys.exit(main())
