"""Ranks of which nobody tells: who is asked after, when, and what an answer is worth."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract.vocabulary import JobState, Next, SchedulerKind, VerbName
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.jobs.early_end import NEVER_STARTED
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.operations.gang import GangRecord
from nodeheal.operations.steps import watch_gang
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import RankStatus, TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs import ask_after_ranks as ranks
from nodeheal.services.jobs.ask_after_ranks import FORGOTTEN, _is_left_unstarted, ask_after_ranks
from nodeheal.services.jobs.runs import await_end
from tests.support.builders import (
    NOW,
    FrozenClock,
    gang_under_way,
    job_under_way,
    scheduler_in,
    started_job,
    stored_job,
)
from tests.support.incident_steps import A, B, C
from tests.support.job_steps import becomes, launched, ports, request, resumed, run_of, stored
from tests.support.observed_operations import saved
from tests.support.three_nodes import started_run

__all__ = ["ports"]  # a fixture

# The turn of this job in the round is at three minutes past, so what is asked earlier or at four is overdue.
NOT_YET, OVERDUE, TURN = 120.0, 240.0, 180.0
HOUR = 3_600.0


def ask(world: Ports, clock: FrozenClock, after: float = OVERDUE) -> list[str]:
    """What one sweep is told, so many seconds from now."""
    clock.advance(after)
    return ask_after_ranks(["demo"], world)


def scheduler_has(world: Ports, rank: int, status: str, exit_code: int | None = None) -> None:
    task_id = run_of(world).tasks[rank].task_id
    seen = RankStatus(task_id, status, is_connected=True, exit_code=exit_code)
    scheduler_in(world).statuses[task_id] = seen


def asked(world: Ports) -> list[str]:
    found: list[str] = scheduler_in(world).asked_after
    return found


def statuses(world: Ports) -> list[str]:
    return [task.status for task in run_of(world).tasks]


# Who is asked after ---------------------------------------------------------------------------------------------------


def test_where_a_rank_has_ended_long_ago_the_others_are_asked_after_and_their_end_is_heard(
    ports: Ports,
    clock: FrozenClock,
) -> None:
    run = launched(ports)
    becomes(ports, 0, "STOPPED", 1)
    scheduler_has(ports, 1, "STOPPED", 134)

    early, late = ask(ports, clock, NOT_YET), ask(ports, clock, OVERDUE - NOT_YET)

    assert (early, late) == ([], [run.tasks[1].task_id])
    assert run_of(ports).tasks[1].exit_code == 134
    assert run_of(ports).has_ended


def test_a_rank_that_was_asked_to_end_is_asked_after_at_once(ports: Ports, clock: FrozenClock) -> None:
    run = launched(ports)
    asked = replace(run, tasks=run.tasks[:1])
    gang_under_way(ports, VerbName.STOP_GANG, asked, token="stop")
    await_end(run, "inc-1", ports)
    scheduler_has(ports, 0, "STOPPED", 143)

    ask(ports, clock, 0)

    assert statuses(ports) == ["STOPPED", "RUNNING"]
    assert "stop" in ports.workflows.resumed  # type: ignore[attr-defined]


def test_a_rank_that_was_started_long_ago_and_is_not_known_to_run_is_asked_after(
    ports: Ports,
    clock: FrozenClock,
) -> None:
    job = stored_job(ports, "llama")
    ports.jobs.save(replace(job, state=JobState.CANCELLED, current_run=0))
    started_job(replace(job, job_id="mistral", version=0), [stored(ports, A), stored(ports, B)], ports)
    task = ports.jobs.get_run("mistral", 1).tasks[0]  # type: ignore[union-attr]
    scheduler_in(ports).statuses[task.task_id] = RankStatus(task.task_id, "RUNNING", is_connected=True)

    told = ask(ports, clock, OVERDUE)

    assert told == [task.task_id]


def test_the_end_of_a_run_of_which_nothing_was_told_at_all_is_found_in_its_turn(
    ports: Ports,
    clock: FrozenClock,
) -> None:
    launched(ports)
    for rank in (0, 1):
        scheduler_has(ports, rank, "STOPPED", 0)

    asked_in_vain = ask(ports, clock, NOT_YET)
    told = ask(ports, clock, TURN - NOT_YET)

    assert (asked_in_vain, len(told)) == ([], 2)
    assert run_of(ports).has_succeeded


def test_a_healthy_run_is_asked_after_once_in_a_round(ports: Ports, clock: FrozenClock) -> None:
    launched(ports)
    for rank in (0, 1):
        scheduler_has(ports, rank, "RUNNING")

    told = [ask(ports, clock, 60) for _ in range(2 * ranks.ROUND_MINUTES)]

    assert not any(told)
    assert len(asked(ports)) == 2 * 2


def test_of_too_many_others_are_asked_after_in_every_minute(
    ports: Ports,
    clock: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = launched(ports)
    await_end(run, "inc-1", ports)
    monkeypatch.setattr(ranks, "RANKS_A_RUN", 1)

    ask(ports, clock, 60), ask(ports, clock, 60)

    assert sorted(asked(ports)) == sorted(task.task_id for task in run.tasks)


def test_a_job_that_its_state_machine_has_handed_over_is_not_asked_after(ports: Ports, clock: FrozenClock) -> None:
    """It writes past the index, in which the job is alive still."""
    launched(ports)
    job = stored_job(ports, "llama")
    ports.jobs.jobs["llama"] = replace(job, state=JobState.FAILED)  # type: ignore[attr-defined]

    ask(ports, clock, TURN)

    assert asked(ports) == []


def test_only_ranks_that_live_and_have_a_task_are_asked_after(ports: Ports, clock: FrozenClock) -> None:
    run = launched(ports)
    over, unstarted = replace(run.tasks[0], status="STOPPED", exit_code=0), replace(run.tasks[1], task_id="")
    ports.jobs.save_run(run.with_task(over).with_task(unstarted))

    ask(ports, clock, TURN)

    assert asked(ports) == []


def test_each_cluster_is_asked_after_its_own_ranks(ports: Ports, clock: FrozenClock) -> None:
    launched(ports)
    becomes(ports, 0, "STOPPED", 1)
    job = stored_job(ports, "llama")
    elsewhere = replace(
        job,
        job_id="mistral",
        cluster=replace(job.cluster, name="elsewhere"),
        state=JobState.RUNNING,
        current_run=0,
        version=0,
    )
    other = started_job(elsewhere, [stored(ports, C)], ports)
    clusters: list[tuple[str, list[str]]] = []

    def sees(cluster: Cluster, tasks: Sequence[GangTask]) -> Sequence[RankStatus]:
        clusters.append((cluster.name, [task.placement for task in tasks]))
        return []

    scheduler_in(ports).rank_statuses = sees
    ask(ports, clock)

    mine = run_of(ports).tasks[1].placement
    assert clusters == [("elsewhere", [other.tasks[0].placement]), ("training", [mine])]


def test_each_scheduler_is_asked_after_its_own_ranks(ports: Ports, clock: FrozenClock) -> None:
    launched(ports)
    becomes(ports, 0, "STOPPED", 1)
    job, other = ports.jobs.get("llama"), cast("SchedulerKind", "OTHER")
    assert job is not None
    assert ports.jobs.save(replace(job, cluster=replace(job.cluster, kind=other)))
    theirs = MemoryScheduler()

    ask(replace(ports, schedulers={**ports.schedulers, other: theirs.as_scheduler(other)}), clock)

    assert (asked(ports), theirs.asked_after) == ([], [run_of(ports).tasks[1].task_id])


def test_what_takes_too_long_to_be_taken_has_its_turn_in_another_minute(
    ports: Ports,
    clock: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched(ports)
    for rank in (0, 1):
        scheduler_has(ports, rank, "STOPPED", 0)

    def slowly(change: TaskChange, world: Ports) -> None:
        clock.advance(ranks.SECONDS_A_RUN + 1)
        on_task_change(change, world)

    monkeypatch.setattr(ranks, "on_task_change", slowly)

    assert len(ask(ports, clock, TURN)) == 1


# What an answer is worth ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "MISSING"])
def test_of_a_machine_that_the_scheduler_does_not_hear_nothing_is_believed_but_an_end(
    ports: Ports,
    clock: FrozenClock,
    status: str,
) -> None:
    run = launched(ports)
    becomes(ports, 0, "STOPPED", 1)
    scheduler_has(ports, 1, status)
    scheduler_in(ports).disconnected.add(run.tasks[1].placement)

    told = ask(ports, clock, 2 * HOUR)

    assert (told, statuses(ports)) == ([], ["STOPPED", "RUNNING"])


def test_an_end_that_the_machine_has_told_before_it_fell_silent_is_one(ports: Ports, clock: FrozenClock) -> None:
    run = launched(ports)
    becomes(ports, 0, "STOPPED", 1)
    scheduler_has(ports, 1, "STOPPED", 1)
    scheduler_in(ports).disconnected.add(run.tasks[1].placement)

    ask(ports, clock)

    assert run_of(ports).has_ended


@pytest.mark.parametrize(
    ("after", "boots", "has_ended"),
    [
        (HOUR + 60, {"boot_id": "boot-1"}, True),
        (HOUR + 60, {"boot_id": "boot-2", "past_boots": ("boot-1",)}, True),
        (HOUR + 60, {"boot_id": "boot-0"}, False),
        (HOUR - 60, {"boot_id": "boot-1"}, False),
    ],
    ids=["forgotten", "rebooted since", "of a boot nobody knows", "too early to be forgotten"],
)
def test_a_task_that_the_scheduler_does_not_know_has_ended_only_where_it_can_have_forgotten_it(
    ports: Ports,
    clock: FrozenClock,
    after: float,
    boots: dict[str, Any],
    has_ended: bool,
) -> None:
    launched(ports)
    becomes(ports, 0, "STOPPED", 1)
    scheduler_has(ports, 1, "MISSING")
    assert ports.nodes.save(replace(stored(ports, B), **boots))

    ask(ports, clock, after)

    assert run_of(ports).has_ended is has_ended
    assert (run_of(ports).tasks[1].stop_reason == FORGOTTEN) is has_ended


def test_a_scheduler_that_says_not_now_is_asked_by_the_next_sweep(ports: Ports, clock: FrozenClock) -> None:
    launched(ports)
    becomes(ports, 0, "STOPPED", 1)
    scheduler_has(ports, 1, "STOPPED", 134)

    answers = scheduler_in(ports).rank_statuses
    scheduler_in(ports).rank_statuses = _throttled
    told = ask(ports, clock)
    scheduler_in(ports).rank_statuses = answers

    assert (told, len(ask(ports, clock, 60))) == ([], 1)


def _throttled(cluster: str, asked_after: Sequence[GangTask]) -> Sequence[RankStatus]:
    raise NotAccepted("DescribeTasks: ThrottlingException")


# What a crash has left ------------------------------------------------------------------------------------------------


def test_an_end_that_was_recorded_and_told_to_nobody_is_told_again(ports: Ports, clock: FrozenClock) -> None:
    run = launched(ports)
    ports.workflows.resumed.clear()  # type: ignore[attr-defined]
    watch_gang(request(), ports)
    gone = tuple(replace(task, status="STOPPED", exit_code=1, stopped_at=NOW) for task in run.tasks)
    ports.jobs.save_run(replace(run, tasks=gone, ended_at=NOW))

    early = dict(ports.workflows.resumed)  # type: ignore[attr-defined]
    ask(ports, clock)

    assert (early, resumed(ports).then) == ({}, Next.ATTRIBUTE)
    assert ports.jobs.get("llama").state is JobState.STOPPED  # type: ignore[union-attr]


def test_a_job_that_was_submitted_again_is_not_settled_by_its_old_run(ports: Ports, clock: FrozenClock) -> None:
    launched(ports)
    for rank in (0, 1):
        becomes(ports, rank, "STOPPED", 1)
    job = stored_job(ports, "llama")
    ports.jobs.save(replace(job, state=JobState.SUBMITTED))

    ask(ports, clock)

    assert ports.jobs.get("llama").state is JobState.SUBMITTED  # type: ignore[union-attr]


@pytest.mark.parametrize("is_dropped", [True, False], ids=["its wait is gone", "its wait is over"])
def test_a_run_that_was_recorded_and_never_started_is_over_when_nobody_starts_it_any_more(
    ports: Ports,
    clock: FrozenClock,
    is_dropped: bool,
) -> None:
    job = stored_job(ports, "llama")
    tasks = tuple(GangTask(name, rank, "boot-1", f"at-{name}") for rank, name in enumerate((A, B)))
    run = Run("llama", 1, NOW, "inc-1/5", tasks)
    ports.jobs.save_run(run)
    ports.jobs.save(replace(job, state=JobState.RUNNING, current_run=1))
    launching = gang_under_way(ports, VerbName.LAUNCH_GANG, run, deadline_at=NOW + timedelta(seconds=2 * HOUR))

    ask(ports, clock, HOUR)
    while_it_is_launched = statuses(ports)
    if is_dropped:
        assert ports.operations.save(launching.delivered())
    ask(ports, clock, 60 if is_dropped else HOUR)

    assert while_it_is_launched == ["PENDING", "PENDING"]
    assert [task.stop_reason for task in run_of(ports).tasks] == [NEVER_STARTED, NEVER_STARTED]


def unstarted(ports: Ports) -> Run:
    """A run of which one rank has no task, an hour after its launch."""
    run = started_run(ports)
    run = saved(ports, run.with_task(replace(run.tasks[1], task_id="")))
    ports.clock.advance(3_600)  # type: ignore[attr-defined]
    return run


def test_a_run_is_left_unstarted_where_nobody_launches_it_any_more(three_nodes: Ports) -> None:
    run = unstarted(three_nodes)
    job_under_way(three_nodes, VerbName.FAN_OUT, data_json='{"parts": []}')  # whose record says nothing of runs
    gang_under_way(
        three_nodes, VerbName.LAUNCH_GANG, replace(run, number=2), data_json=GangRecord(run=2).model_dump_json()
    )

    assert _is_left_unstarted(run, three_nodes)
    gang_under_way(three_nodes, VerbName.LAUNCH_GANG, run, operation_id="another")
    assert not _is_left_unstarted(run, three_nodes)
