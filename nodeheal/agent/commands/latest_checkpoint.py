"""`nodeheal-agent latest-checkpoint`: prints the newest complete checkpoint, for batch scripts.

It needs neither a configuration nor the CLI's packages: often a node has only the agent.
"""

import argparse
import sys
from pathlib import Path

from nodeheal.agent.commands.node_command import number
from nodeheal.checkpoints.apart import list_apart
from nodeheal.contract.vocabulary import CheckpointFormat

EXIT_FOUND, EXIT_NONE = 0, 1
SECONDS, LONGEST_SECONDS = 60.0, 3_600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the folder, the format and the deadline."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="the directory of the job's checkpoints")
    parser.add_argument(
        "--format", choices=list(CheckpointFormat), default="auto", help="auto: detected from the files"
    )
    about = f"give up on a file system that hangs after so many seconds; default {SECONDS:g}"
    parser.add_argument("--seconds", type=number(1, LONGEST_SECONDS), default=SECONDS, help=about)


def carry_out(arguments: argparse.Namespace) -> int:
    """Print its path and nothing else; returns 1 where none is complete. Standard error lists the skipped checkpoints
    with reasons.
    """
    directory = str(arguments.directory.absolute())
    listing = list_apart(directory, CheckpointFormat(arguments.format), arguments.seconds, to_newest_valid=True)
    newest = listing.newest_valid
    notes = [f"skipped {checkpoint.told}" for checkpoint in listing.skipped]
    if newest is None:
        why = listing.problem or "no whole checkpoint of a format that nodeheal knows"
        notes.append(f"{directory}: {why}")
    else:
        sys.stdout.write(f"{newest.path}\n")
    sys.stderr.writelines(f"{note}\n" for note in notes)
    return EXIT_NONE if newest is None else EXIT_FOUND
