"""`nodeheal-agent config`: says whether the configuration can be used."""

import argparse
import sys

from nodeheal.agent.checks.registry import chosen
from nodeheal.agent.config import given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None but what every command takes."""


def carry_out(arguments: argparse.Namespace) -> int:
    """Read it; the exit code. Raises ConfigError."""
    config = given(arguments)
    chosen(config)  # the names of its checks, which only the checks' own code knows
    sys.stdout.write(f"the configuration of {config.node_id} can be used\n")
    return 0
