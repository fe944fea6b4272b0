"""Processes with an accelerator that wait and do not run, and dead ones that nobody collects.

Many wait for a moment, or for a file server: only one with an accelerator open keeps that from the next job. Threads of
the kernel wait by trade.

Source: proc_pid_stat(5), proc_pid_status(5).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.check import Check, CheckResult, Place, Problem, State, always
from nodeheal.agent.checks.gpu_processes import gpu_users, holds_accelerator
from nodeheal.agent.thresholds import ZOMBIES
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

TOLD = 10
REMEMBERED = 1000  # what is remembered of a node where everything hangs must still fit into an answer
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s{1,10}(\d{1,20})", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """What /proc says of one process."""

    pid: int
    name: str
    state: str
    started: int  # clock ticks after the boot: with the pid it names a process for good
    is_kernel: bool = False


def parse_stat(text: str) -> Process | None:
    """One process; None for what is no such line. A name may hold blanks and brackets."""
    before, _, after = text.rpartition(")")
    pid, _, name = before.partition(" (")
    fields = after.split()
    if not pid.isdecimal() or len(fields) < 20 or not (fields[6].isdecimal() and fields[19].isdecimal()):
        return None
    return Process(int(pid), name, fields[0], int(fields[19]), bool(int(fields[6]) & _KERNEL_THREAD))


def _look(place: Place, state: State) -> CheckResult:
    """One is stuck if it has waited at the last look too and has not run in between: anything else is mere work."""
    processes = list(_processes(place.proc))
    kept = state.get("waiting")
    before = kept if isinstance(kept, Mapping) else {}
    asleep = [one for one in processes if one.state == "D" and not one.is_kernel]
    asleep = sorted(asleep, key=lambda one: one.pid)[:REMEMBERED]
    waiting = {_key(one): _switches(place.proc / str(one.pid)) for one in asleep}
    stuck = [one for one in asleep if before.get(_key(one)) == waiting[_key(one)]]
    holders, unknown = _sorted_out(place, stuck)
    zombies = [one for one in processes if one.state == "Z"]
    return CheckResult(
        tuple(_judge(holders, zombies, place.config.limit(ZOMBIES))),
        unclear=f"nobody tells whether an accelerator is held by {_named(unknown)}, which wait" if unknown else "",
        state={"waiting": waiting},
        summary=f"{len(processes)} processes",
    )


def _sorted_out(place: Place, stuck: list[Process]) -> tuple[list[Process], list[Process]]:
    """Those that have an accelerator open, and those of which that cannot be told."""
    users = gpu_users(place) if stuck else None
    held = {one.pid: holds_accelerator(place.proc / str(one.pid), users) for one in stuck}
    return [one for one in stuck if held[one.pid]], [one for one in stuck if held[one.pid] is None]


def _judge(holders: list[Process], zombies: list[Process], most_zombies: float) -> Iterator[Problem]:
    if holders:
        told = f"waiting since the last look, without running, with an accelerator open: {_named(holders)}"
        yield _problem("d_state_processes", told)
    if len(zombies) >= most_zombies:
        yield _problem("zombie_processes", f"{len(zombies)} dead processes are not collected: {_named(zombies)}")


def _processes(proc: Path) -> Iterator[Process]:
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            found = parse_stat(_read(folder / "stat"))
            if found:
                yield found


def _switches(folder: Path) -> list[int]:
    """How often it has been switched to and from; the same numbers again: it has not run."""
    return [int(count) for count in _SWITCHES.findall(_read(folder / "status"))]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""  # it has ended meanwhile


def _key(process: Process) -> str:
    return f"{process.pid}/{process.started}"


def _named(processes: list[Process]) -> str:
    more = f" and {len(processes) - TOLD} more" if len(processes) > TOLD else ""
    return ", ".join(f"{one.name} ({one.pid})" for one in processes[:TOLD]) + more


def _problem(code: str, message: str) -> Problem:
    return Problem(Finding(Family.host, code, None, message), message)


CHECK = Check(
    name="processes",
    about="processes that hold an accelerator and are stuck, and zombies",
    interval_seconds=300.0,  # it reads a file for each process
    deadline_seconds=30.0,
    why_not=always,
    look=_look,
)
