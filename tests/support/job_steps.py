"""A run of a job, step by step, over the ports in memory."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.ecs.stop_reasons import causes_of
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import (
    JobState,
    JobStep,
    Next,
    Outcome,
)
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Run
from nodeheal.operations.steps import launch_job
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.steps import save_node
from tests.support.builders import (
    ACT,
    NOW,
    FrozenClock,
    memory_ports,
    node,
    stored_job,
    stored_node,
    stored_run,
)
from tests.support.incident_steps import A, B, C
from tests.support.jobs import ecs_job

TOKEN = "token-1"


@pytest.fixture
def ports(clock: FrozenClock) -> Ports:
    """Three nodes, of which two are claimed for a job that was submitted."""
    world = memory_ports(clock)
    for name, claimed_by in ((A, "llama"), (B, "llama"), (C, None)):
        world.nodes.save(node(name, claimed_by=claimed_by))
    job = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, state=JobState.SUBMITTED, submission=1)
    world.jobs.save(replace(job, submitted_at=NOW))
    return world


def request(step: JobStep = JobStep.CHOOSE, nodes: tuple[str, ...] = (A, B), **changes: Any) -> JobRequest:
    """What a function of run_job is given."""
    last = JobResult(
        step=step, job_id="llama", outcome=Outcome.DONE, then=Next.CHECK, reason="so", finished_at=NOW, nodes=nodes
    )
    told = last.model_copy(update={name: changes.pop(name, None) for name in ("ending", "trouble")})
    return JobRequest(**{"job_id": "llama", "submission": 1, "round": 1, "last": told, "task_token": TOKEN, **changes})


def stored(ports: Ports, name: str) -> Node:
    return stored_node(ports, name)


def resumed(ports: Ports) -> JobResult:
    """What the workflow was resumed with."""
    found: JobResult = ports.workflows.resumed[TOKEN]  # type: ignore[attr-defined]
    return found


def launched(ports: Ports) -> Run:
    """The job's first run, of which every rank runs."""
    for name in (A, B):
        save_node(ports, stored(ports, name), claimed_by="llama")
    launch_job(request(), ports, ACT)
    for rank in (0, 1):
        becomes(ports, rank, "RUNNING")
    return run_of(ports)


def run_of(ports: Ports) -> Run:
    job = stored_job(ports, "llama")
    return stored_run(ports, "llama", job.current_run)


def becomes(ports: Ports, rank: int, status: str, exit_code: int | None = None, reason: str = "") -> None:
    task, run = run_of(ports).tasks[rank], run_of(ports)
    told = (exit_code, reason, ports.clock(), None, causes_of(reason))
    change = TaskChange("llama", run.number, task.task_id, task.placement, status, *told)
    wakeup.on_task_change(change, ports)
