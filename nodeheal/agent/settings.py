"""`nodeheal-agent config`: says whether the configuration can be used."""

import argparse
import sys

from nodeheal.agent.config import given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None but what every command takes."""


def carry_out(arguments: argparse.Namespace) -> int:
    """Read it; the exit code."""
    sys.stdout.write(f"the configuration of {given(arguments).node_id} can be used\n")
    return 0
