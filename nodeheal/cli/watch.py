"""`nodeheal status --watch`: the screen is drawn again and again, and keys lead to an incident and answer it."""

import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from nodeheal.api import incident_queries
from nodeheal.api.views import FleetView, IncidentRow
from nodeheal.cli import approvals, connect, job_log
from nodeheal.cli.incident_view import question, story_of
from nodeheal.cli.say import clean, refuse, say, wrapped
from nodeheal.cli.status_view import as_lines
from nodeheal.domain.recovery.incident import short_id

KEYS = "j/k move  Enter show  l log  a approve  r refuse  q quit"
KEYS_OF_STORY = "j/k scroll   q back"
_CHOSEN, _OFF = "\x1b[7m", "\x1b[0m"
_ESC = "\x1b"
_ARROWS = {"\x1b[A": "k", "\x1b[B": "j"}
_ACTS = {"a": "approve", "r": "refuse", "l": "log"}


@dataclass(frozen=True)
class Screen:
    """What is drawn. `story`: the lines of the incident that is looked at, and none for the overview."""

    view: FleetView
    chosen: int = 0
    story: tuple[str, ...] = ()
    top: int = 0  # the first line of the story that is drawn

    @property
    def incidents(self) -> list[IncidentRow]:
        """Those that can be chosen: first what waits for a human."""
        rows = [*self.view.asked, *self.view.handed_over, *self.view.open]
        return list({row.incident: row for row in rows}.values())

    @property
    def incident(self) -> IncidentRow | None:
        """The one that is chosen."""
        rows = self.incidents
        return rows[min(self.chosen, len(rows) - 1)] if rows else None


def press(screen: Screen, key: str) -> tuple[Screen, str]:
    """The screen after a key, and what the key asks for: `show`, `approve`, `refuse`, `log`, `quit` or nothing."""
    step = {"j": 1, "k": -1}.get(key, 0)
    if screen.story:
        if key in ("q", _ESC):
            return replace(screen, story=(), top=0), ""
        return replace(screen, top=max(0, min(screen.top + step, len(screen.story) - 1))), ""
    if key == "q":
        return screen, "quit"
    if screen.incident is None:
        return screen, ""
    if key in ("\r", "\n"):
        return screen, "show"
    last = len(screen.incidents) - 1
    return replace(screen, chosen=max(0, min(screen.chosen + step, last))), _ACTS.get(key, "")


def drawn(screen: Screen, width: int, height: int) -> list[str]:
    """The lines of the terminal, with the keys on the last one."""
    if screen.story:
        lines, keys = list(screen.story[screen.top :]), KEYS_OF_STORY
    else:
        lines, keys = _marked(as_lines(screen.view, width), screen.incident), KEYS if screen.incident else "q quit"
    room = max(1, height - 2)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines"]
    footer = keys if screen.story else f"{screen.view.at:%H:%M:%S} UTC   {keys}"
    return [*lines, *[""] * (room - len(lines)), footer[:width]]


def _marked(lines: Sequence[str], incident: IncidentRow | None) -> list[str]:
    name = short_id(incident.incident) if incident else None
    return [f"{_CHOSEN}{line}{_OFF}" if name and line.startswith(name) else line for line in lines]


def watch_status(look: Callable[[], FleetView], table: str, every: float) -> None:
    """Draw until `q` or Ctrl-C. `every`: seconds between two looks."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        refuse("--watch: it needs a terminal; without one, run `nodeheal status`")
    with connect.clearly():
        screen = Screen(look())
        console = Console(highlight=False)
        while True:
            with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
                screen, act = _until_act(screen, live, console, look, every, table)
            if act == "quit":
                return
            _carry_out(act, screen, table)
            typed("Enter goes back: ")


def _until_act(
    screen: Screen, live: Live, console: Console, look: Callable[[], FleetView], every: float, table: str
) -> tuple[Screen, str]:
    while True:
        live.update(Text.from_ansi("\n".join(drawn(screen, *console.size))), refresh=True)
        if not select.select([sys.stdin], [], [], every)[0]:
            screen = replace(screen, view=look())
            continue
        screen, act = press(screen, _read_key())
        if act == "show" and screen.incident is not None:
            screen = replace(screen, story=_story(screen.incident, console.size.width, table))
        elif act:
            return screen, act


def _read_key() -> str:
    key = sys.stdin.read(1)
    if key == _ESC and select.select([sys.stdin], [], [], 0.05)[0]:
        key += sys.stdin.read(2)
    return _ARROWS.get(key, key)


def _story(incident: IncidentRow, width: int, table: str) -> tuple[str, ...]:
    name = incident.incident
    view = incident_queries.incident(name, connect.ports(table), lambda: connect.policy_copy(table))
    lines = [clean(line) for line in story_of(view, connect.execution_url(name))]
    return tuple(part for line in lines for part in wrapped(line, width))


def _carry_out(act: str, screen: Screen, table: str) -> None:
    incident = screen.incident
    if incident is None:
        return
    try:
        if act == "log":
            if incident.job:
                job_log.say_logs(incident.job, None, None, table, is_followed=False)
            else:
                typer.echo("it stopped no job")
            return
        if incident.incident not in {row.incident for row in screen.view.asked}:
            typer.echo(f"{short_id(incident.incident)} waits for no approval")
            return
        short, asked = short_id(incident.incident), incident_queries.question(incident.incident, connect.ports(table))
        say(*(question(asked, short) if asked is not None else []))
        if not (why := typed(f"{act} {short} ({incident.node}); why? (empty: go back) ")):
            typer.echo("nothing was answered")
            return
        (approvals.approve if act == "approve" else approvals.refuse)(incident.incident, why, table)
    except typer.Exit:  # what was wrong stands on the screen
        return


def typed(question: str) -> str:
    """The line that is typed now, not before. Empty: none, or Esc or Ctrl-C is in it, or the terminal is gone."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    try:
        line = input(question)
    except (EOFError, KeyboardInterrupt, UnicodeDecodeError):
        typer.echo()
        return ""
    return "" if _ESC in line else clean(line).strip()


@contextmanager
def _keys() -> Iterator[None]:
    """Keys come one by one, and are not shown."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
