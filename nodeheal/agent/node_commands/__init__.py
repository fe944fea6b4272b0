"""`nodeheal-agent run COMMAND`: the commands that the control plane sends to a node by SSM.

Each module of this folder is one command, described by its `COMMAND`. A new command is a new module; there is no list.
A module that fails to load does not affect other commands: a node must be able to reboot whatever else is broken.
"""

import argparse
import logging
import pkgutil
import sys
from importlib import import_module
from typing import NoReturn

from nodeheal.agent.commands.node_command import LATEST, NodeCommand, number
from nodeheal.agent.runtime import config as configuration

EXIT_BROKEN = 70  # as in commands/command_line.py

logger = logging.getLogger(__name__)


def all_commands() -> dict[str, NodeCommand]:
    """Return all commands by name."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {module.replace("_", "-"): _load(module) for module in modules}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every command under `run`."""
    stale = argparse.ArgumentParser(add_help=False)
    stale.add_argument(
        "--boot-id", required=True, help="the boot that the command is for; on any other boot it is refused"
    )
    until = "epoch seconds; refused after that"
    stale.add_argument("--expires-at", type=number(0, LATEST), required=True, help=until)
    subcommands, parents = parser.add_subparsers(dest="command_name", required=True), [configuration.option(), stale]
    for name, command in all_commands().items():
        options = subcommands.add_parser(name, parents=parents, help=command.help)
        try:
            command.add_arguments(options)
        except Exception as error:
            _broken(name, f"{type(error).__name__}: {error}").add_arguments(options)


def carry_out(arguments: argparse.Namespace) -> int:
    """Run the requested command; returns the exit code. 3: refused, because it is stale."""
    config = configuration.given(arguments)
    return _load(str(arguments.command_name).replace("-", "_")).carry_out(arguments, config)


def _load(module: str) -> NodeCommand:
    try:
        command = import_module(f"{__name__}.{module}").COMMAND
        if isinstance(command, NodeCommand):
            return command
        why = "its COMMAND is not a NodeCommand"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    return _broken(module, why)


def _broken(module: str, why: str) -> NodeCommand:
    """Return a placeholder for a command that cannot be loaded; it reports that when it is run."""

    def refuse(*_: object, **__: object) -> NoReturn:
        logger.error("the command cannot be loaded", extra={"command": module, "why": why})
        sys.exit(EXIT_BROKEN)

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.parse_known_args = refuse  # type: ignore[method-assign] # whatever options it has

    return NodeCommand(f"cannot be loaded: {why}".replace("%", "%%"), add_arguments, refuse)
