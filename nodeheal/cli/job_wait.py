"""`nodeheal jobs wait`: a line for each change, and an exit code by how it ended."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Never, TypeVar

import typer
from botocore.exceptions import BotoCoreError, ClientError

from nodeheal.cli import connect
from nodeheal.cli.connect import clearly
from nodeheal.cli.last_lines import last_lines
from nodeheal.cli.say import say
from nodeheal.cli.slurm import our_job
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.ports import Ports

Answer = TypeVar("Answer")
LOOK_EVERY_SECONDS = 2.0
# A wait of days outlives a network that is away for a moment; credentials that have expired do not come back.
TRIES = 5
TIME_IS_UP = 5
EXIT_CODES = {JobState.COMPLETED: 0, JobState.FAILED: 3, JobState.CANCELLED: 4}


def seconds_or_none(text: str | None) -> int | None:
    """A length of time, if one is given; refused where it is none."""
    return None if text is None else connect.seconds_of(text)


def follow(
    job_id: str,
    world: Ports,
    seconds: int | None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Never:
    """Say how it goes until it ends; then leave with the code of its ending."""
    until = None if seconds is None else clock() + seconds
    last: tuple[JobState, str] | None = None
    while True:
        with clearly():
            job = patiently(lambda: our_job(job_id, world), sleep)
        run = world.jobs.get_run(job.job_id, job.current_run) if job.is_over else None
        if (job.state, job.summary) != last:
            was_over = last is None and job.is_over
            last = (job.state, job.summary)
            say(line_of(job, _ended_at(job, run) if was_over else world.clock()))
        if job.is_over:
            say(*last_lines(job, run, world))
            raise typer.Exit(EXIT_CODES[job.state])
        if until is not None and clock() >= until:
            say(f"{job_id} goes on; the time to wait for it is up")
            raise typer.Exit(TIME_IS_UP)
        sleep(LOOK_EVERY_SECONDS)


def _ended_at(job: Job, run: Run | None) -> datetime | None:
    """When its last run ended. None for a stopped job: the stop may have come later, and its time is not recorded."""
    return None if job.state is JobState.CANCELLED else job.ended_at(run)


def line_of(job: Job, at: datetime | None) -> str:
    """One line of progress. `at`: None where nobody has written down when that was."""
    when = f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "before"
    return f"{when}  {job.state}  {job.summary or 'submitted'}"


def patiently(ask: Callable[[], Answer], sleep: Callable[[float], None]) -> Answer:
    """The answer, asked for again where AWS cannot be reached for a moment."""
    for _ in range(TRIES - 1):
        try:
            return ask()
        except (BotoCoreError, ClientError, NotAccepted) as error:
            say(f"{error}; asking again", aside=True)
            sleep(LOOK_EVERY_SECONDS)
    return ask()
