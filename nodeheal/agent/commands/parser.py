"""The argument parser of `nodeheal-agent`. It imports nothing that the agent needs only at work."""

import argparse
import sys
from typing import NoReturn

EXIT_USAGE = 64  # as in sysexits(3)


class Parser(argparse.ArgumentParser):
    """An argument parser whose usage error cannot be taken for a verdict."""

    def error(self, message: str) -> NoReturn:
        """Print the error and the usage, then exit."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}\n")
