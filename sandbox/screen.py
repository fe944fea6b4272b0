"""Shows the demo: the timeline as it happens, the training step beside it, and the summary at the end."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nodeheal.contract.vocabulary import Outcome, SchedulerKind, Step
from nodeheal.domain.recovery.incident import short_id
from sandbox.legs import LEGS
from sandbox.report import Verdict
from sandbox.slurm import CRED_EXPIRE_SECONDS
from sandbox.story import Told

STYLES = {
    "stage": "dim",
    "command": "bold",
    "kubectl": "bold",
    "output": "dim",
    "fault": "bold red",
    "opened": "yellow",
    "event": "yellow",
    "decision": "bold cyan",
    "progress": "",
    "result": "green",
    "training": "magenta",
    "mail": "blue",
    "person": "bold green",
    "answer": "bold green",
}
MARKS = {
    "command": "$",
    "kubectl": "$",
    "fault": "✗",
    "opened": "→",
    "event": "!",
    "decision": "?",
    "progress": "·",
    "result": "✓",
    "training": "▶",
    "mail": "@",
    "person": "☺",
    "answer": "☺",
}
BARS = "▁▂▃▄▅▆▇█"


class Screen:
    """Prints each line of the story once, and updates one line below while there is a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._started = time.time()
        self._live: Live | None = None

    def __enter__(self) -> "Screen":
        if self.console.is_terminal:
            self._live = Live(Text(""), console=self.console, refresh_per_second=12, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def stage(self, text: str) -> None:
        """Print a line about the sandbox itself."""
        self._row(f"{time.time() - self._started:.1f} s", " ", text, "")

    def busy(self, text: str) -> None:
        """Show what is being waited for."""
        if self._live is not None:
            self._live.update(Text(f"          {text} …", style="dim"))

    def hear(self, told: Told, text: str) -> None:
        """Receive news, as a Listener."""
        if text:
            at, kind, _ = told.lines[-1]
            self._print(told, at, kind, text)
        if self._live is not None:
            self._live.update(_training_line(told))

    def _print(self, told: Told, at: float, kind: str, text: str) -> None:
        if kind == "stage":
            self.stage(text)
            return
        if kind == "command":
            self._row(f"{at - self._started:.1f} s", MARKS[kind], text, STYLES[kind])
            return
        if kind == "output":  # a table of a command: a wrapped row would be no row any more
            soft = is_piped(self.console)
            row, no_wrap = Text(f"  {text}", STYLES[kind]), None if soft else True
            self.console.print(row, no_wrap=no_wrap, overflow="crop", soft_wrap=soft)
            return
        if kind == "fault":
            self.console.rule("[bold red]the fault[/]; from here on the demo only watches", style="red")
        mark, style = MARKS[kind], STYLES[kind]
        if kind == "result" and f" {Outcome.DONE}: " not in text:
            mark, style = "✗", "bold red"
        self._row(f"{at - told.fault_at:+.2f} s", mark, text, style)

    def _row(self, clock: str, mark: str, text: str, style: str) -> None:
        """Format one line of the timeline, with a hanging indent. In a pipe it is one line, whatever its length."""
        if is_piped(self.console):
            self.console.print(Text(f"{clock:>9} {mark} {text}"), soft_wrap=True)
            return
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=9, justify="right", style="dim")
        grid.add_column(width=1)
        grid.add_column()
        grid.add_row(clock, Text(mark, style), Text(text, style))
        self.console.print(grid)


def _training_line(told: Told) -> RenderableType:
    training = told.training
    if training is None or not training.read().lines:
        return Text("")
    total = told.script.steps
    done = int(30 * training.last_step / total)
    bar = "━" * done + "─" * (30 - done)
    loss = training.losses[-1] if training.losses else 0.0
    return Text.assemble(
        ("          training ", "dim"),
        (bar, "magenta"),
        f" run {training.run}  step {training.last_step:>4}/{total}  loss {loss:.4f}  ",
        (sparkline(training.losses, 24), "magenta"),
        no_wrap=True,
        overflow="crop",
    )


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the curve in one line of text, at most `width` characters."""
    if not values:
        return ""
    step = max(1, -(-len(values) // width))
    picked = values[::step]
    low, high = min(picked), max(picked)
    span = (high - low) or 1.0
    return "".join(BARS[int((value - low) / span * (len(BARS) - 1))] for value in picked)


_OF_LEGS = (
    "on top: the machine's boot, its diagnostics and the start of the trainer; floor: the waits for AWS that the leg "
    "cannot do without, at this demo's latencies"
)


@dataclass(frozen=True)
class Where:
    """Where the demo has left what it prints."""

    report: str
    emails: str


def show_summary(console: Console, report: dict[str, Any], verdict: Verdict, told: Told, where: Where) -> None:
    """Print the table, the email, the path through the state machines, and commands for more."""
    console.rule("what happened")
    console.print(_numbers(report, told))
    console.print(_legs(report["legs"]))
    console.print(Text(_OF_LEGS, style="dim"))
    for email in report["emails"]:
        _show_email(console, email, "email", "blue")
    for email in report["owner_emails"]:
        _show_email(console, email, "email to the owner of the job", "magenta")
    console.print(_paths(report["executions"]))
    console.print(Text(f"Look closer: the report with the whole timeline is {where.report}", style="dim"))
    console.print(Text(f"The emails, as files, are in {where.emails}", style="dim"))
    if verdict.is_right:
        console.print(Text("The story ended as it should.", style="bold green"))
    for wrong in verdict.wrong:
        console.print(Text(f"Not as it should be: {wrong}.", style="bold red"))


def is_piped(console: Console) -> bool:
    """Whether the output goes to a pipe or a file: no frame, and no line is broken, so that it can be copied."""
    return not console.is_terminal and not console.record


def _show_email(console: Console, email: dict[str, Any], title: str, style: str) -> None:
    text = f"{email['subject']}\n\n{email['body'].strip()}"
    if is_piped(console):
        console.print(Text(f"\n{title}: {text}\n"), soft_wrap=True)
    else:
        console.print(Panel(Text(text), title=title, border_style=style))


def _numbers(report: dict[str, Any], told: Told) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    rows: OrderedDict[str, str] = OrderedDict()
    rows["incident"] = short_id(report["incident"]["id"])
    parent = next((run for run in report["executions"] if run["name"] == report["incident"]["id"]), None)
    rows["ended"] = parent["path"][-1] if parent else "no execution found"
    rows["fault line to event accepted"] = _seconds(report["detected_seconds"])
    waited = _has_waited_for_people(report["incident"]["results"])
    rows["fault line to node isolated"] = _seconds(report["isolated_seconds"], waited)
    rows["fault line to training again"] = _seconds(report["recovered_seconds"])
    if told.script.scheduler is SchedulerKind.SLURM:
        rows["  Slurm waits after a requeue"] = f"{CRED_EXPIRE_SECONDS:6} s     (Slurm's default: 120 s)"
    if told.script.scheduler is SchedulerKind.ECS:  # on Slurm the job resumes elsewhere while the node is healed
        rows["  of that, the control plane"] = _seconds(report["control_plane_seconds"], waited)
    rows["attempts spent on the node"] = ", ".join(f"{n} {a}" for a, n in report["attempts"].items()) or "none"
    rows["training"] = (
        f"step {report['step_at_fault']} at the fault, resumed from {_or_dash(report['resumed_from_step'])}, "
        f"last step {report['final_step']} of {told.script.steps}"
    )
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _legs(legs: Sequence[dict[str, Any]]) -> Table:
    """Print the seconds by leg."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("leg", style="dim")
    table.add_column("took", justify="right")
    table.add_column("on top", justify="right")
    table.add_column("floor", justify="right")
    table.add_column("", style="dim", no_wrap=True)
    for leg in legs:
        own = f"{leg['own_seconds']:.2f} s" if leg["own_seconds"] else ""
        floor = LEGS[leg["name"]].named
        table.add_row(leg["name"], f"{leg['seconds']:.2f} s", own, f"{leg['floor_seconds']:.2f} s", floor)
    return table


def _paths(executions: Sequence[dict[str, Any]]) -> RenderableType:
    lines = [Text("The path through the state machines:", style="bold")]
    for run in executions:
        indent = "  " if run["machine"].endswith("recover-node") else "    "
        lines.append(
            Text.assemble(
                f"{indent}{run['machine']} ", (run["status"], "green"), (f"  {' → '.join(run['path'])}", "dim")
            )
        )
    return Group(*lines)


def _has_waited_for_people(results: Sequence[list[str]]) -> bool:
    """Whether nothing was done before an answer came, or a slot of the budget was free."""
    before = takewhile(lambda one: one != [Step.ISOLATE, Outcome.DONE], results)
    return any(step == Step.WAIT for step, _ in before)


def _seconds(value: float | None, has_waited: bool = False) -> str:
    """Format a measured time. It is this machine's: `make bench` holds aims, on idle machines."""
    shown = "-" if value is None else f"{value:.2f} s"
    return f"{shown:>9}  (a wait for people included)" if value is not None and has_waited else f"{shown:>9}"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
