"""`nodeheal-agent config`: checks whether the configuration is valid."""

import argparse
import sys

from nodeheal.agent.checks.registry import chosen
from nodeheal.agent.runtime.config import given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options beyond those of every command."""


def carry_out(arguments: argparse.Namespace) -> int:
    """Read the configuration; returns the exit code. Raises ConfigError."""
    config = given(arguments)
    chosen(config)  # checks the names of its checks, which only their code knows
    sys.stdout.write(f"the configuration of {config.node_id} is valid\n")
    return 0
