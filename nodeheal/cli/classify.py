"""`nodeheal classify`: the faults in a kernel log, and what the catalog says about each."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from nodeheal.cli.say import say
from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.evidence.kernel_log import LogFormat, read_findings
from nodeheal.contract.vocabulary import Action, Family, Verdict
from nodeheal.domain.catalog import find

BAD_INPUT = 2
STANDARD_INPUT = "-"
_NUMBERED = (Family.xid, Family.sxid)
_UNDESCRIBED = "the catalog does not know this fault: a human must look"


def classify(
    file: Annotated[str, typer.Argument(help="a kernel log; - for standard input", show_default=True)] = "-",
    log_format: Annotated[
        LogFormat, typer.Option("--format", help="how the lines of the log begin", case_sensitive=False)
    ] = LogFormat.auto,
) -> None:
    """Read a kernel log and print every fault in it as a line of JSON, as soon as it is found."""
    try:
        with _opened(file) as log:
            for line_number, finding in read_findings(log, log_format):
                sys.stdout.write(json.dumps(classified(line_number, finding)) + "\n")
                sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough. Python would complain once more when it flushes at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        say(f"{file}: {error.strerror or error}", aside=True)
        raise typer.Exit(BAD_INPUT) from None


def classified(line_number: int, finding: Finding) -> dict[str, str | int | None]:
    """What the command prints about a fault. One that nobody has described goes to a human."""
    row = find(finding.family, finding.code, finding.subcode)
    return {
        "line_number": line_number,
        "family": finding.family.value,
        "code": int(finding.code) if finding.family in _NUMBERED else finding.code,
        "subcode": finding.subcode,
        "component": finding.component,
        "pid": finding.pid,
        "verdict": (row.verdict if row else Verdict.UNKNOWN).value,
        "action": (row.action if row else Action.ESCALATE).value,
        "reason": row.why if row else _UNDESCRIBED,
        "name": row.name if row else None,
        "message": finding.message,
    }


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as log:
        yield log
