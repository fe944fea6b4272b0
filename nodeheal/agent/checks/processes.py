"""Checks for blocked processes that have an accelerator open, and for zombies.

Many processes block for a moment, or on a file server; only one with an accelerator open keeps it from the next job.
Kernel threads block by design.

Source: proc_pid_stat(5), proc_pid_status(5).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State, always
from nodeheal.agent.checks.gpu_processes import gpu_users, holds_accelerator
from nodeheal.agent.runtime.thresholds import ZOMBIES
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

TOLD = 10
REMEMBERED = 1000  # the stored state must fit into an answer even where everything hangs
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s{1,10}(\d{1,20})", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """The /proc entry of one process."""

    pid: int
    name: str
    state: str
    started: int  # clock ticks after boot: with the pid it identifies a process
    is_kernel: bool = False


def parse_stat(text: str) -> Process | None:
    """Parse one process; None where the line is not valid. A name may contain blanks and brackets."""
    before, _, after = text.rpartition(")")
    pid, _, name = before.partition(" (")
    fields = after.split()
    if not pid.isdecimal() or len(fields) < 20 or not (fields[6].isdecimal() and fields[19].isdecimal()):
        return None
    return Process(int(pid), name, fields[0], int(fields[19]), bool(int(fields[6]) & _KERNEL_THREAD))


def _look(place: CheckContext, state: State) -> NodeCheckResult:
    """Check all processes. One is stuck if it blocked at the last run, too, and has not run in between; otherwise it
    does normal work.
    """
    processes = list(_processes(place.proc))
    kept = state.get("waiting")
    before = kept if isinstance(kept, Mapping) else {}
    asleep = [process for process in processes if process.state == "D" and not process.is_kernel]
    asleep = sorted(asleep, key=lambda process: process.pid)[:REMEMBERED]
    waiting = {_key(process): _switches(place.proc / str(process.pid)) for process in asleep}
    stuck = [process for process in asleep if before.get(_key(process)) == waiting[_key(process)]]
    holders, unknown = _sorted_out(place, stuck)
    zombies = [process for process in processes if process.state == "Z"]
    return NodeCheckResult(
        tuple(_judge(holders, zombies, place.config.limit(ZOMBIES))),
        unclear=f"it is not known whether blocked processes have an accelerator open: {_named(unknown)}"
        if unknown
        else "",
        state={"waiting": waiting},
        summary=f"{len(processes)} processes",
    )


def _sorted_out(place: CheckContext, stuck: list[Process]) -> tuple[list[Process], list[Process]]:
    """Return those that have an accelerator open, and those for which that is not known."""
    users = gpu_users(place) if stuck else None
    held = {process.pid: holds_accelerator(place.proc / str(process.pid), users) for process in stuck}
    holders = [process for process in stuck if held[process.pid]]
    return holders, [process for process in stuck if held[process.pid] is None]


def _judge(holders: list[Process], zombies: list[Process], most_zombies: float) -> Iterator[Problem]:
    if holders:
        message = f"blocked since the last check, without running, with an accelerator open: {_named(holders)}"
        yield _problem("d_state_processes", message)
    if len(zombies) >= most_zombies:
        yield _problem(
            "zombie_processes",
            f"{len(zombies)} processes have ended and their parents do not collect them (zombies): {_named(zombies)}",
        )


def _processes(proc: Path) -> Iterator[Process]:
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            process = parse_stat(_read(folder / "stat"))
            if process:
                yield process


def _switches(folder: Path) -> list[int]:
    """Return its context switches; an equal value later means that it has not run."""
    return [int(count) for count in _SWITCHES.findall(_read(folder / "status"))]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""  # it has ended in the meantime


def _key(process: Process) -> str:
    return f"{process.pid}/{process.started}"


def _named(processes: list[Process]) -> str:
    more = f" and {len(processes) - TOLD} more" if len(processes) > TOLD else ""
    return ", ".join(f"{process.name} ({process.pid})" for process in processes[:TOLD]) + more


def _problem(code: str, message: str) -> Problem:
    return Problem(Finding(Family.host, code, None, message), message)


CHECK = NodeCheck(
    name="processes",
    about="processes that hold an accelerator and are stuck, and zombies",
    interval_seconds=300.0,  # it reads a file for each process
    deadline_seconds=30.0,
    why_not=always,
    look=_look,
)
