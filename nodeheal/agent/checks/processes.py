"""Processes that wait for a driver or file system and can't be killed, and dead ones that nobody collects.

Source: proc_pid_stat(5), proc_pid_status(5).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.checks.check import Check, Look, Place, Problem, State, always
from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.vocabulary import Family

ZOMBIES = 500  # each keeps a number, of which there are 32,768 where nobody has raised the limit
TOLD = 10
REMEMBERED = 1000  # what is remembered of a node where everything hangs must still fit into an answer
_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s{1,10}(\d{1,20})", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """What /proc says of one process."""

    pid: int
    name: str
    state: str
    started: int  # clock ticks after the boot: with the pid it names a process for good


def parse_stat(text: str) -> Process | None:
    """One process; None for what is no such line. A name may hold blanks and brackets."""
    before, _, after = text.rpartition(")")
    pid, _, name = before.partition(" (")
    fields = after.split()
    if not pid.isdecimal() or len(fields) < 20 or not fields[19].isdecimal():
        return None
    return Process(int(pid), name, fields[0], int(fields[19]))


def _look(place: Place, state: State) -> Look:
    """One is stuck if it has waited at the last look too and has not run in between: anything else is mere work."""
    processes = list(_processes(place.proc))
    kept = state.get("waiting")
    before = kept if isinstance(kept, Mapping) else {}
    asleep = sorted((one for one in processes if one.state == "D"), key=lambda one: one.pid)[:REMEMBERED]
    waiting = {_key(one): _switches(place.proc / str(one.pid)) for one in asleep}
    stuck = [one for one in asleep if before.get(_key(one)) == waiting[_key(one)]]
    zombies = [one for one in processes if one.state == "Z"]
    return Look(
        tuple(_judge(stuck, zombies)),
        state={"waiting": waiting},
        summary=f"{len(processes)} processes",
    )


def _judge(stuck: list[Process], zombies: list[Process]) -> Iterator[Problem]:
    if stuck:
        yield _problem("d_state_processes", f"waiting since the last look, and cannot be killed: {_named(stuck)}")
    if len(zombies) >= ZOMBIES:
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
    about="processes stuck in a driver or file system, and zombies",
    interval_seconds=300.0,  # it reads a file for each process
    deadline_seconds=30.0,
    why_not=always,
    look=_look,
)
