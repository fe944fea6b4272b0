"""What can be said to `nodeheal-agent`, and which module does it."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from nodeheal import __version__
from nodeheal.agent import config as configuration

EXIT_USAGE = 64  # as sysexits(3) has it


class Command(Protocol):
    """A module that is a command. Loaded when it is asked for: what the agent does not need stays out of its memory."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """What it takes."""

    def carry_out(self, arguments: argparse.Namespace) -> int:
        """Do it; the exit code. Raises ConfigError, OSError."""


class Parser(argparse.ArgumentParser):
    """A usage error must not look like a verdict."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and how it is used."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}\n")


def carry_out(words: Sequence[str]) -> int:
    """Do what the words say; the exit code. Raises ConfigError, OSError."""
    arguments = _parser(words).parse_args(words)
    return _COMMANDS[arguments.command][1]().carry_out(arguments)


def _watch() -> Command:
    from nodeheal.agent import watching

    return watching


def _run() -> Command:
    from nodeheal.agent import node_commands

    return node_commands


def _check() -> Command:
    from nodeheal.agent import check_now

    return check_now


def _doctor() -> Command:
    from nodeheal.agent import doctor

    return doctor


def _config() -> Command:
    from nodeheal.agent import settings

    return settings


def _copy_credentials() -> Command:
    from nodeheal.agent import copy_credentials

    return copy_credentials


def _after_boot() -> Command:
    from nodeheal.agent import after_boot

    return after_boot


def _prolog() -> Command:
    from nodeheal.agent import prolog

    return prolog


def _slurm() -> Command:
    from nodeheal.agent import slurm

    return slurm


def _latest_checkpoint() -> Command:
    from nodeheal.agent import latest_checkpoint

    return latest_checkpoint


def _units() -> Command:
    from nodeheal.agent import units

    return units


_COMMANDS: dict[str, tuple[str, Callable[[], Command]]] = {
    "watch": ("watch this node until stopped", _watch),
    "run": ("carry out one command, as the SSM documents do", _run),
    "check": ("look at this node once; exit code: 0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN", _check),
    "doctor": ("say what works here, what is missing, and whether the bus takes events", _doctor),
    "config": ("say whether the configuration can be used", _config),
    "copy-credentials": ("hand root's AWS credentials to the agent's user", _copy_credentials),
    "after-boot": ("run the diagnostics that a reboot has left for this boot", _after_boot),
    "prolog": ("as Slurm's Prolog, before a job starts: look at this node; exit code 1: it has failed", _prolog),
    "slurm": ("on a machine of a Slurm controller: look at nodes and jobs, drain, resume, requeue", _slurm),
    "latest-checkpoint": ("print the path of a job's newest checkpoint that is whole", _latest_checkpoint),
    "units": ("write the units of systemd", _units),
}


def _parser(words: Sequence[str]) -> Parser:
    about = "Reports facts about this node to nodeheal."
    parser = Parser(prog="nodeheal-agent", description=about, parents=[configuration.option()])
    parser.add_argument("--version", action="version", version=f"nodeheal-agent {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (purpose, load) in _COMMANDS.items():
        command = commands.add_parser(name, help=purpose, parents=[configuration.option()])  # type: ignore[list-item]  # any parser
        if name in words:
            load().add_arguments(command)
    return parser
