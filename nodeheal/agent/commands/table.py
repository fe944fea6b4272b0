"""Lists the subcommands of `nodeheal-agent`, and which module implements each."""

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

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


# Each subcommand: its purpose, and its module in nodeheal.agent.
COMMANDS: dict[str, tuple[str, str]] = {
    "watch": ("watch this node until stopped", "runtime.watching"),
    "run": ("carry out one command, as the SSM documents do", "node_commands"),
    "check": ("run every check once; exit code: 0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN", "commands.check_now"),
    "doctor": ("report what works on this node, what is missing, and whether the bus takes events", "commands.doctor"),
    "config": ("check whether the configuration is valid", "commands.config"),
    "node-config": ("in a pod: complete the configuration by this node's Node object", "commands.node_config"),
    "copy-credentials": ("copy root's AWS credentials for the agent's user", "commands.copy_credentials"),
    "after-boot": ("run the diagnostics that a reboot command stored for this boot", "commands.after_boot"),
    "prolog": ("as Slurm's Prolog, before a job starts: check this node; exit code 1: it has failed", "slurm.prolog"),
    "slurm": ("on a machine of a Slurm controller: list nodes and jobs, drain, resume, requeue", "slurm.verbs"),
    "latest-checkpoint": ("print the path of a job's newest complete checkpoint", "commands.latest_checkpoint"),
    "units": ("write the systemd units", "units"),
}


def carry_out(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code. Raises ConfigError, OSError."""
    arguments = _parser(words).parse_args(words)
    return load(arguments.command).carry_out(arguments)


def load(name: str) -> Subcommand:
    """Import the module of a subcommand."""
    return cast("Subcommand", import_module(f"nodeheal.agent.{COMMANDS[name][1]}"))


def _parser(words: Sequence[str]) -> Parser:
    about = "Reports facts about this node to nodeheal."
    parser = Parser(prog="nodeheal-agent", description=about, parents=[configuration.option()])
    parser.add_argument("--version", action="version", version=f"nodeheal-agent {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (purpose, _) in COMMANDS.items():
        # Any parser.
        command = commands.add_parser(name, help=purpose, parents=[configuration.option()])  # type: ignore[list-item]
        if name in words:
            load(name).add_arguments(command)
    return parser
