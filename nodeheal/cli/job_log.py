"""`nodeheal jobs logs`: what the ranks have written."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from nodeheal.api import records
from nodeheal.api.job_log import RunLog, open_log
from nodeheal.cli import connect
from nodeheal.cli.connect import clearly
from nodeheal.cli.job_wait import LOOK_EVERY_SECONDS, patiently
from nodeheal.cli.say import say
from nodeheal.cli.slurm import our_job
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job_log import LogLine
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import JobLogs

QUIET_LOOKS = 3  # a container's last lines come a moment after its end


def say_logs(name: str, rank: int | None, run: int | None, table: str, *, is_followed: bool) -> None:
    """Say what the ranks of a job have written: one rank or all, of one run or the newest."""
    with clearly():
        world = connect.ports(table)
        shelf = world.logs_of(our_job(name, world))
        if is_followed:
            tail(name, rank, run, world, shelf)
        else:
            opened = open_log(name, world, shelf, run, rank)
            say(*heading(opened, world), aside=True)  # whoever pipes the lines wants nothing else among them
            _say(opened, lines := opened.read())
            if not lines:
                yet = "" if opened.run.has_ended else " yet"
                say(f"run {opened.run.number} of {name} has written nothing{yet}: {opened.where()}", aside=True)


def tail(
    name: str,
    rank: int | None,
    number: int | None,
    world: Ports,
    shelf: JobLogs,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Say what is new until the job ends (or the run that was asked for), and go on with each of its runs."""
    while not records.job(name, world).current_run and not records.job(name, world).is_over:
        sleep(LOOK_EVERY_SECONDS)
    wanted = number
    while True:
        opened = patiently(partial(open_log, name, world, shelf, wanted, rank), sleep)
        say(*heading(opened, world))
        _tail_run(opened, world, sleep)
        if number is not None or not _has_next(opened, world, sleep):
            return
        wanted = opened.run.number + 1


def heading(opened: RunLog, world: Ports) -> list[str]:
    """Which run it is, of how many, and how the one before it ended."""
    name, number, newest = opened.job.job_id, opened.run.number, opened.job.current_run
    lines = [f"--- run {number} of {max(number, newest)} of {name} ---"]
    before = world.jobs.get_run(name, number - 1) if number > 1 else None
    if before is not None:
        broke = first_failure(before)
        ended = broke.words if broke else "every rank ended well" if before.has_succeeded else "it was stopped"
        lines.append(
            f"--- run {before.number} before it: {ended} (nodeheal jobs logs {name} --run {before.number}) ---"
        )
    return lines


def _tail_run(opened: RunLog, world: Ports, sleep: Callable[[float], None]) -> None:
    quiet = 0
    while quiet < QUIET_LOOKS:
        patiently(lambda: opened.look_again(world), sleep)
        is_over = opened.run.has_ended or opened.job.is_over or opened.job.current_run > opened.run.number
        new = patiently(opened.read, sleep)
        _say(opened, new)
        quiet = quiet + 1 if is_over and not new else 0
        if not new:
            sleep(LOOK_EVERY_SECONDS)


def _has_next(opened: RunLog, world: Ports, sleep: Callable[[float], None]) -> bool:
    """Wait for the next run. False: the job is over, and there is none."""
    while True:
        patiently(lambda: opened.look_again(world), sleep)
        if opened.job.current_run > opened.run.number:
            return True
        if opened.job.is_over:
            return False
        sleep(LOOK_EVERY_SECONDS)


def _say(opened: RunLog, lines: Sequence[tuple[int, LogLine]]) -> None:
    is_one = len(opened.ranks) == 1
    for rank, line in lines:
        say(line.text if is_one else f"[{rank}] {line.text}")
