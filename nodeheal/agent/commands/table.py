"""Lists the subcommands of `nodeheal-agent`, and which module implements each."""

import argparse
from collections.abc import Callable, Sequence
from typing import Protocol

from nodeheal import __version__
from nodeheal.agent.commands.parser import Parser
from nodeheal.agent.runtime import config as configuration


class Subcommand(Protocol):
    """A module that implements a subcommand. It is loaded on demand, so that the agent's memory holds only what it
    uses.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the subcommand's options."""

    def carry_out(self, arguments: argparse.Namespace) -> int:
        """Run the subcommand; returns its exit code. Raises ConfigError, OSError."""


def carry_out(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code. Raises ConfigError, OSError."""
    arguments = _parser(words).parse_args(words)
    return _COMMANDS[arguments.command][1]().carry_out(arguments)


def _watch() -> Subcommand:
    from nodeheal.agent.runtime import watching

    return watching


def _run() -> Subcommand:
    from nodeheal.agent import node_commands

    return node_commands


def _check() -> Subcommand:
    from nodeheal.agent.commands import check_now

    return check_now


def _doctor() -> Subcommand:
    from nodeheal.agent.commands import doctor

    return doctor


def _config() -> Subcommand:
    from nodeheal.agent.commands import config as settings

    return settings


def _copy_credentials() -> Subcommand:
    from nodeheal.agent.commands import copy_credentials

    return copy_credentials


def _after_boot() -> Subcommand:
    from nodeheal.agent.commands import after_boot

    return after_boot


def _node_config() -> Subcommand:
    from nodeheal.agent.commands import node_config

    return node_config


def _prolog() -> Subcommand:
    from nodeheal.agent.slurm import prolog

    return prolog


def _slurm() -> Subcommand:
    from nodeheal.agent.slurm import verbs

    return verbs


def _latest_checkpoint() -> Subcommand:
    from nodeheal.agent.commands import latest_checkpoint

    return latest_checkpoint


def _units() -> Subcommand:
    from nodeheal.agent import units

    return units


_COMMANDS: dict[str, tuple[str, Callable[[], Subcommand]]] = {
    "watch": ("watch this node until stopped", _watch),
    "run": ("carry out one command, as the SSM documents do", _run),
    "check": ("run every check once; exit code: 0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN", _check),
    "doctor": ("report what works on this node, what is missing, and whether the bus takes events", _doctor),
    "config": ("check whether the configuration is valid", _config),
    "node-config": ("in a pod: complete the configuration by this node's Node object", _node_config),
    "copy-credentials": ("copy root's AWS credentials for the agent's user", _copy_credentials),
    "after-boot": ("run the diagnostics that a reboot command stored for this boot", _after_boot),
    "prolog": ("as Slurm's Prolog, before a job starts: check this node; exit code 1: it has failed", _prolog),
    "slurm": ("on a machine of a Slurm controller: list nodes and jobs, drain, resume, requeue", _slurm),
    "latest-checkpoint": ("print the path of a job's newest complete checkpoint", _latest_checkpoint),
    "units": ("write the systemd units", _units),
}


def _parser(words: Sequence[str]) -> Parser:
    about = "Reports facts about this node to nodeheal."
    parser = Parser(prog="nodeheal-agent", description=about, parents=[configuration.option()])
    parser.add_argument("--version", action="version", version=f"nodeheal-agent {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (purpose, load) in _COMMANDS.items():
        # Any parser.
        command = commands.add_parser(name, help=purpose, parents=[configuration.option()])  # type: ignore[list-item]
        if name in words:
            load().add_arguments(command)
    return parser
