"""A start of ranks that broke off goes on: a rank that was started before is not started once more."""

from dataclasses import replace

import pytest

from nodeheal.domain.jobs.job import GangTask
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.jobs.start_gang import start_ranks
from tests.support.builders import ACT, FrozenClock, memory_ports, node, scheduler_in, started_job
from tests.support.job_cluster import NODES, JobCluster
from tests.support.jobs import ecs_job_of


def test_a_rank_that_was_started_and_has_ended_since_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler finds what runs, and not what has ended: it would start the rank beside the others' failure."""
    clock = FrozenClock()
    ports, asked = memory_ports(clock), list[int]()
    job = ecs_job_of(JobCluster().spec, "training", "trainer:1", clock())
    nodes = [node(name) for name in NODES[:2]]
    for one in nodes:
        ports.nodes.save(one)
    started_job(job, nodes, ports)
    stored, run = current_run(job.job_id, ports)
    assert stored is not None
    assert run is not None
    broke_off = run.with_task(replace(run.tasks[0], status="STOPPED", exit_code=1))
    broke_off = broke_off.with_task(replace(broke_off.tasks[1], task_id=""))

    def start(job: object, run: object, task: GangTask, environment: object) -> str:
        asked.append(task.rank)
        return f"again-{task.rank}"

    monkeypatch.setattr(scheduler_in(ports), "start_rank", start)
    monkeypatch.setattr(scheduler_in(ports), "find_ranks", lambda job, run: {})  # nothing of it runs
    start_ranks(stored, broke_off, ports, ACT)

    assert asked == [1]
