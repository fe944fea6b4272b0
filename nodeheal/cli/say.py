"""What every command does the same way: print, refuse, read a policy."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Never

import typer
from pydantic import ValidationError

from nodeheal.domain.policy.policy import PolicyRefused, RecoveryPolicy, complaints_of, parse_policy

DEFAULT_POLICY = Path(__file__).resolve().parent.parent / "policies" / "default.json"
BAD_INPUT = 2


def clean(text: str) -> str:
    """The text on one line. What a node or a job has said may hold anything: nothing of it reaches the terminal as a
    command, turns the direction of the line, or looks like a line of ours.
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def say(*lines: str, aside: bool = False) -> None:
    """For people. `aside`: on stderr, where stdout is to go into a file as it is."""
    for line in lines:
        (sys.stderr if aside else sys.stdout).write(f"{clean(line)}\n")


def say_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """For people: columns as wide as their widest cell, the last one as long as it is. A cell is one line."""
    cells = [[" ".join(cell.split()) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    for row in cells:
        fixed = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        say("  ".join([*fixed, row[-1]]).rstrip())


def say_json(value: object) -> None:
    """For programs."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def iso(at: datetime | None) -> str | None:
    """A time, for programs."""
    return at.isoformat(timespec="seconds") if at else None


def refuse(*why: str) -> Never:
    """Say what is wrong with the input, and stop."""
    say(*why, aside=True)
    raise typer.Exit(BAD_INPUT)


def complaints(where: str, error: ValidationError) -> list[str]:
    """What is wrong with a document, a line for each field."""
    return [f"{where}: {complaint}" for complaint in complaints_of(error)]


def read_text(file: Path) -> str:
    """The file's text; refused where it cannot be read."""
    try:
        return file.read_text("utf-8")
    except OSError as error:
        refuse(f"{file}: {error.strerror}")
    except UnicodeDecodeError:
        refuse(f"{file}: it is not UTF-8 text")


def read_policy(file: Path) -> RecoveryPolicy:
    """The policy document; refused with the field named where it is not valid."""
    try:
        return parse_policy(read_text(file))
    except PolicyRefused as refused:
        refuse(*(f"{file}: {complaint}" for complaint in refused.complaints))
