"""`nodeheal classify`: the faults in a kernel log, and what the catalog says about each."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import file_views
from nodeheal.cli import decompressed
from nodeheal.cli.say import say, say_json
from nodeheal.contract.vocabulary import Action, Family, Verdict
from nodeheal.domain.faults import catalog
from nodeheal.domain.humanize import counted
from nodeheal.parsers import kernel_log
from nodeheal.parsers.log_format import LogFormat

if TYPE_CHECKING:
    from nodeheal.parsers.finding import Finding
    from nodeheal.parsers.kernel_filter import Readable

NOTHING_FOUND, BAD_INPUT = 1, 2
STANDARD_INPUT = "-"
_FILE = "a kernel log, as it is or compressed (gzip, xz, bzip2, zstd); - for standard input"
_NUMBERED = (Family.xid, Family.sxid)
_UNDESCRIBED = "the catalog does not know this fault: a human must look"


def classify(
    file: Annotated[str, typer.Argument(help=_FILE, show_default=True)] = STANDARD_INPUT,
    log_format: Annotated[
        LogFormat, typer.Option("--format", help="how the lines of the log begin", case_sensitive=False)
    ] = LogFormat.auto,
) -> None:
    """Read a kernel log and print every fault in it as a line of JSON, as soon as it is found.

    What was read is told on stderr. Exit codes are grep's: 0 a fault was found, 1 none, 2 the log cannot be read.
    """
    tally, faults = kernel_log.Tally(), 0
    try:
        with _opened(file) as log:
            for line_number, finding in kernel_log.read_findings(log, log_format, tally=tally):
                say_json(classified(line_number, finding), indent=None)
                sys.stdout.flush()
                faults += 1
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it flushes at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    except (OSError, *decompressed.BROKEN) as error:
        say(f"{file}: {getattr(error, 'strerror', None) or error}", aside=True)
        raise typer.Exit(BAD_INPUT) from None
    for line in _told(tally, faults, log_format):
        say(line, aside=True)
    if not faults:
        raise typer.Exit(NOTHING_FOUND)


def _told(tally: "kernel_log.Tally", faults: int, log_format: LogFormat) -> Iterator[str]:
    ordinary = tally.suspicious - tally.not_believed - faults
    yield (
        f"{counted(tally.lines, 'line')} read; {tally.suspicious} of them may report a fault: "
        f"{counted(faults, 'fault')}, {ordinary} ordinary, {tally.not_believed} not believed to be the kernel's"
    )
    if tally.not_believed:
        hint = "" if log_format is LogFormat.any else "; for lines of several forms try --format any"
        yield f"the first that is not believed is line {tally.first_not_believed}{hint}"
    if tally.no_text:
        lines = counted(tally.no_text, "line")
        yield f"{lines} with zero bytes, which no text has: UTF-16, an archive, or a damaged log"


def classified(line_number: int, finding: "Finding") -> "file_views.ClassifiedFault":
    """Return the view of a fault. One that nobody has described goes to a human."""
    row = catalog.find(finding.family, finding.code, finding.subcode)
    return file_views.ClassifiedFault(
        line_number=line_number,
        family=finding.family,
        code=int(finding.code) if finding.family in _NUMBERED else finding.code,
        subcode=finding.subcode,
        component=finding.component,
        pid=finding.pid,
        verdict=row.verdict if row else Verdict.UNKNOWN,
        action=row.action if row else Action.ESCALATE,
        reason=row.why if row else _UNDESCRIBED,
        name=row.name if row else None,
        message=finding.message,
    )


@contextmanager
def _opened(file: str) -> "Iterator[Readable]":
    with ExitStack() as stack:
        log = sys.stdin.buffer if file == STANDARD_INPUT else stack.enter_context(Path(file).open("rb"))
        yield stack.enter_context(decompressed.decompressed(log))
