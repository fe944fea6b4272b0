"""Runs of a job, to account for."""

from datetime import timedelta
from typing import Any

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.domain.jobs.goodput import Goodput, goodput_of
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.recovery.incident import Incident
from tests.support.builders import NOW
from tests.support.jobs import ecs_job

# Incident names hold no "/": what a run was launched for is INCIDENT/TURN.
RESTARTED = "inc-1/4"


def at(seconds: float) -> Any:
    return NOW + timedelta(seconds=seconds)


def job(**changes: Any) -> Job:
    values: dict[str, Any] = {
        "job_id": "llama",
        "pool": "demo",
        "cluster": "c",
        "task_definition": "t",
        "container": "t",
    }
    return ecs_job(**{**values, "nodes": 8, "submitted_at": NOW, "chosen_at": at(100), **changes})


def run(number: int, started: float, running: float | None, ended: float | None, **changes: Any) -> Run:
    why = RESTARTED if number > 1 else "run_job llama-1-1"
    since = None if running is None else at(running)
    over = None if ended is None else at(ended)
    values = {"why": why, "tasks": (), "running_since": since, "ended_at": over}
    return Run("llama", number, at(started), **{**values, **changes})


# Waits 100 s, is checked for 300, starts in 100. Run 1 brings 30 steps in 4,000 s, run 2 as many in 3,000: 1,000 s of
# run 1 were for nothing. Down for 300 and 100 s, each restart takes 100. Run 3 has run for 2,000 s.
THREE_RUNS = (
    run(1, 400, 500, 4_500),
    run(2, 4_800, 4_900, 7_900, resumed_from="/c/30", resumed_step=30),
    run(3, 8_000, 8_100, None, resumed_from="/c/60", resumed_step=60),
)


def account(*runs: Run, now: float = 10_100, of: Job | None = None, incidents: tuple[Incident, ...] = ()) -> Goodput:
    return goodput_of(of or job(), runs, incidents, at(now))


def where(**changes: Any) -> Checkpoints:
    return Checkpoints.model_validate({"directory": "/c", "write_seconds": 50, "every_seconds": 3_600, **changes})
