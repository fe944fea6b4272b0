"""`nodeheal-agent after-boot`: runs the diagnostics that a reboot command left on the node.

The unit `nodeheal-after-boot.service` runs it once the driver, the Fabric Manager and DCGM are up, so that the control
plane need not send a command.
"""

import argparse
import logging
from pathlib import Path

from nodeheal.agent import node_commands
from nodeheal.agent.commands.node_command import EXIT_DONE, EXIT_REFUSED
from nodeheal.agent.commands.parser import Parser
from nodeheal.agent.node_commands import diag
from nodeheal.agent.runtime import config as configuration
from nodeheal.agent.runtime import orders

logger = logging.getLogger(__name__)


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def carry_out(arguments: argparse.Namespace) -> int:
    """Take the stored command and run it. Returns the exit code; 0 where no command is stored."""
    config = configuration.given(arguments)
    command = orders.take(Path(config.orders_dir))
    if command is None:
        return EXIT_DONE
    running = config.boot_id()
    node, left_on = command.pop(orders.NODE), command.pop(orders.NOT_ON)
    if node != config.node_id or left_on == running:
        why = f"they were left for {node}" if node != config.node_id else "the node has not rebooted"
        logger.error("diagnostics refused", extra={"why": why, "request": command["request_id"]})
        return EXIT_REFUSED
    if diag.is_running(config):
        logger.warning("other diagnostics are running", extra={"request": command["request_id"]})
        return EXIT_DONE
    words = [f"--{name.replace('_', '-')}={value}" for name, value in command.items()]
    named = [f"--config={arguments.config}"] if hasattr(arguments, "config") else []
    parser = Parser(prog="nodeheal-agent run")
    node_commands.add_arguments(parser)
    return node_commands.carry_out(parser.parse_args(["diag", *named, f"--boot-id={running}", *words]))
