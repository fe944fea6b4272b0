"""Tables that fit the terminal. Columns are cut with `…`, a reason is wrapped under its row, states have a colour.

What goes into a pipe or a file is plain, and never cut.
"""

import os
import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from textwrap import wrap

from nodeheal.cli.say import clean
from nodeheal.contract.vocabulary import Availability, IncidentState, JobState, NodeState

GAP = "  "
IDS = ("NODE", "INCIDENT")
NARROWEST = 6  # characters that a column keeps
NOTE = 24  # characters that the last column needs beside the others
INDENT = "    "
_GREEN, _YELLOW, _RED, _DIM, _OFF = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
COLOURS: dict[str, str] = {
    **dict.fromkeys((Availability.FREE, Availability.UP, Availability.BUSY), _GREEN),
    **dict.fromkeys((Availability.DRAINING, Availability.DRAINED), _YELLOW),
    **dict.fromkeys((NodeState.HEALTHY, JobState.RUNNING, JobState.COMPLETED, "recovered", "restarted"), _GREEN),
    **dict.fromkeys((NodeState.SUSPECT, NodeState.ISOLATED, NodeState.RECOVERING, NodeState.PROBATION), _YELLOW),
    **dict.fromkeys((JobState.SUBMITTED, JobState.STOPPED), _YELLOW),
    **dict.fromkeys((IncidentState.OPEN.lower(), IncidentState.WAITING.lower()), _YELLOW),  # breakers are open, too
    **dict.fromkeys((NodeState.QUARANTINED, JobState.FAILED, "handed over"), _RED),
    **dict.fromkeys((NodeState.RETIRED, JobState.CANCELLED), _DIM),
}


def say_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, is_wide: bool = False) -> None:
    """Print a table. The last column is the one that may be long. `is_wide`: nothing is cut or wrapped."""
    cells = [[" ".join(clean(cell).split()) for cell in row] for row in (head, *rows)]
    for line in fitted(cells, None if is_wide or not sys.stdout.isatty() else get_terminal_size().columns):
        sys.stdout.write(f"{line}\n")


def fitted(cells: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The lines of a table, head first. `width` in characters. None: as wide as it is, without colours."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is None:
        return [_line(row, widths[:-1], row[-1]) for row in cells]
    fixed, note = _narrowed(cells[0][:-1], widths, width), widths[-1]
    room = width - sum(fixed) - len(GAP) * len(fixed)
    if note <= room:
        return [_coloured(row, fixed, [row[-1]]) for row in cells]
    lines = []
    is_beside = room >= max(NOTE, min(note, width // 3))
    for number, row in enumerate(cells):
        words = (
            []
            if row[-1] in ("", "-") and number
            else wrap(row[-1], room if is_beside else width - len(INDENT), break_on_hyphens=False)
        )
        lines.append(_coloured(row, fixed, words[:1] if is_beside else []))
        if number or is_beside:
            under = " " * (width - room) if is_beside else INDENT
            lines += [f"{under}{line}" for line in (words[1:] if is_beside else words)]
    return lines


def _narrowed(head: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """The widths below these heads, of which the widest give way until all fit; ids, which are typed again, last."""
    fitting = list(widths[: len(head)])
    for may_give in ([number for number, name in enumerate(head) if name not in IDS], range(len(head))):
        while sum(fitting) + len(GAP) * (len(fitting) - 1) > width and may_give:
            widest = max(may_give, key=fitting.__getitem__)
            if fitting[widest] <= NARROWEST:
                break
            fitting[widest] -= 1
    return fitting


def _line(row: Sequence[str], widths: Sequence[int], note: str) -> str:
    fixed = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
    return GAP.join([*fixed, note]).rstrip()


def _coloured(row: Sequence[str], widths: Sequence[int], note: Sequence[str]) -> str:
    has_colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    cells = []
    for cell, width in zip(row, widths, strict=False):
        cut = cell if len(cell) <= width else f"{cell[: width - 1]}…"
        colour = COLOURS.get(cell, "") if has_colour else ""
        cells.append(f"{colour}{cut}{_OFF}{' ' * (width - len(cut))}" if colour else f"{cut:<{width}}")
    return GAP.join([*cells, *note]).rstrip()
