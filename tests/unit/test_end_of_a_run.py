"""What a job says of itself in the moment in which the last rank of its run has ended."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from nodeheal.adapters.ecs.rank_change import task_change
from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.jobs.gang import ending_text
from nodeheal.domain.jobs.job import Job
from nodeheal.operations.steps import watch_gang
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.ask_after_ranks import ask_after_ranks
from nodeheal.services.jobs.job_steps import save_job
from nodeheal.services.saving import node_of
from tests.support.builders import FrozenClock, as_rank, memory_ports, node, started_job, stored_job, stored_run
from tests.support.incident_steps import LLAMA, A, B, Incident
from tests.support.jobs import ecs_job

UNDER_WAY = "run 1 is under way"


def ended(it: Incident, *codes: int, summary: str = UNDER_WAY) -> Job:
    """The job, right after its ranks have ended so: before its workflow has looked."""
    run = stored_run(it.ports, "llama", 1)
    save_job(it.ports, "llama", summary=summary, run_said_to_run=int(summary == UNDER_WAY))
    for task, code in zip(run.tasks, codes, strict=True):
        on_task_change(TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", code, "Exited"), it.ports)
    return stored_job(it.ports, "llama")


def test_a_job_that_is_done_does_not_say_that_it_is_under_way() -> None:
    job = ended(Incident(), 0, 0)

    assert (job.state, job.summary) == (JobState.COMPLETED, "every rank of run 1 has ended with exit code 0")


def test_a_job_that_has_failed_says_which_rank_broke() -> None:
    job = ended(Incident(), 139, 1)

    assert job.state is JobState.STOPPED
    assert job.summary.startswith("run 1 has ended: rank 0 on ")
    assert "exit code 139" in job.summary


def test_what_is_known_better_already_is_not_written_over() -> None:
    assert ended(Incident(), 139, 1, summary="2 nodes run diagnostics").summary == "2 nodes run diagnostics"


def test_when_a_rank_began_is_kept_as_ecs_tells_it() -> None:
    it = Incident()
    run = stored_run(it.ports, "llama", 1)
    [first, *_] = run.tasks
    assert it.ports.jobs.save_run(run.with_task(replace(first, status="PENDING")))
    known = {**as_rank("llama", 1), "containerInstanceArn": first.placement, "taskArn": first.task_id}
    for status, more in (("RUNNING", {"startedAt": "2026-03-01T03:00:07Z"}), ("STOPPED", {})):
        change = task_change(EcsTaskDetail.model_validate({**known, "lastStatus": status, **more}))
        assert change is not None
        on_task_change(change, it.ports)

    told = stored_run(it.ports, "llama", 1)
    assert [str(task.started_at) for task in told.tasks if task.task_id == first.task_id] == [
        "2026-03-01 03:00:07+00:00"
    ]


def reported(ports: Ports, status: str, run: int = 1, **changes: Any) -> None:
    found = stored_run(ports, "llama", run)
    for task in found.tasks:
        change = TaskChange("llama", run, task.task_id, task.placement, status, changes.get("exit_code"), "")
        wakeup.on_task_change(change, ports)


def jobs_of(ports: Ports) -> list[str | None]:
    return [found.job_id for found in (node_of(A, ports), node_of(B, ports))]


def test_a_job_that_is_done_gives_its_nodes_back(three_nodes: Ports) -> None:
    started_job(LLAMA, [node_of(A, three_nodes), node_of(B, three_nodes)], three_nodes)
    reported(three_nodes, "RUNNING")
    assert jobs_of(three_nodes) == ["llama", "llama"]
    save_job(three_nodes, "llama", summary="its checkpoints are searched")

    reported(three_nodes, "STOPPED", exit_code=0)

    assert jobs_of(three_nodes) == [None, None]
    job, run = three_nodes.jobs.get("llama"), three_nodes.jobs.get_run("llama", 1)
    assert job is not None and run is not None and job.summary == ending_text(run)


def test_a_rank_of_an_older_run_that_is_said_to_run_frees_no_node(three_nodes: Ports) -> None:
    started_job(LLAMA, [node_of(A, three_nodes), node_of(B, three_nodes)], three_nodes)
    job = three_nodes.jobs.get("llama")
    assert job is not None and three_nodes.jobs.save(replace(job, current_run=2))

    reported(three_nodes, "RUNNING")

    assert jobs_of(three_nodes) == ["llama", "llama"]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_late_word_of_an_older_run_ends_no_job_that_was_submitted_again(exit_code: int) -> None:
    ports, names = memory_ports(), ("mi-1", "mi-2")
    for name in names:
        ports.nodes.save(node(name))
    run = started_job(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2), [node(n) for n in names], ports)
    job = stored_job(ports, "llama")
    assert ports.jobs.save(replace(job, state=JobState.SUBMITTED, submission=2))

    for task in run.tasks:
        known = ports.jobs.get_run("llama", 1)
        task_id = known.tasks[task.rank].task_id if known else ""
        on_task_change(TaskChange("llama", 1, task_id, task.placement, "STOPPED", exit_code, ""), ports)

    after = stored_job(ports, "llama")
    assert after.state is JobState.SUBMITTED
    assert [one.job_id for one in ports.nodes.in_pool("demo")] == [None, None]


class Dies:
    """Counts the calls that write, and is gone before the one with this number is carried out."""

    def __init__(self, dies_at: int) -> None:
        self._calls, self._dies_at = 0, dies_at

    def at(self, port: object, name: str) -> None:
        """Count the calls of this method, too."""
        carried_out = getattr(port, name)

        def call(*given: Any, **named: Any) -> Any:
            self._calls += 1
            if self._calls == self._dies_at:
                raise ConnectionError(f"{name}: gone")
            return carried_out(*given, **named)

        setattr(port, name, call)


@pytest.mark.parametrize("dies_at", range(1, 7))
def test_a_job_whose_end_was_half_told_leaves_nothing_and_tells_its_workflow(dies_at: int) -> None:
    """No queue tells it again: the sweep does, which looks after jobs that are not over."""
    clock = FrozenClock()
    ports, names = memory_ports(clock), ("mi-1", "mi-2")
    for name in names:
        ports.nodes.save(node(name))
    where = Checkpoints(directory="/fsx/llama")
    job = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, checkpoints=where, submission=1)
    run = started_job(job, [node(name) for name in names], ports)
    ports.job_notes.hold("/fsx/llama", "llama")
    watch_gang(JobRequest(job_id="llama", submission=1, round=0, task_token="watching"), ports)
    dies, it = Dies(dies_at), cast("Any", ports)
    for port, name in (
        (it.nodes, "save"),
        (it.jobs, "save"),
        (it.job_notes, "release_directory"),
        (it.operations, "save"),
    ):
        dies.at(port, name)

    for task in run.tasks:
        known = ports.jobs.get_run("llama", 1)
        task_id = known.tasks[task.rank].task_id if known else ""
        with suppress(ConnectionError):
            on_task_change(TaskChange("llama", 1, task_id, task.placement, "STOPPED", 0, ""), ports)
    clock.advance(300)
    ask_after_ranks(["demo"], ports)

    after = stored_job(ports, "llama")
    assert after.state is JobState.COMPLETED
    assert [one.job_id for one in ports.nodes.in_pool("demo")] == [None, None]
    assert it.job_notes.leases == {}
    assert "watching" in it.workflows.resumed


def test_an_event_of_another_task_does_not_change_the_rank() -> None:
    it = Incident()
    run = stored_run(it.ports, "llama", 1)

    on_task_change(TaskChange("llama", 1, "another-task", run.tasks[0].placement, "STOPPED", 1, ""), it.ports)

    assert it.ports.jobs.get_run("llama", 1) == run
