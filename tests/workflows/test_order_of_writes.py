"""Which of two writes comes first, where the other way round something is lost until the sweep, or for good."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.names import pool_line
from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, VerbName
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.steps import stop_gang
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.end_job import end_job
from nodeheal.simulation.hazards import Died
from tests.support.builders import NOW, node, scheduler_in, started_job, stored_run, under_way, xid
from tests.support.fake_cluster import BROKEN, PEER
from tests.support.replacement_pool import A as EC2
from tests.support.replacement_pool import Pool
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import peers_fault, world
from tests.workflows.scenarios.turns import opened


def test_a_slot_is_free_before_the_next_in_line_is_called() -> None:
    it, waiting = world(), incident_id_of(peers_fault())
    line = (pool_line("BUDGET", "demo"), "99#last")
    it.meanwhile["return_to_service"] = [lambda: it._ingest(peers_fault()), lambda: None]
    it.fuse.meanwhile["return_to_service", "nodes.save"] = lambda: under_way(
        it.plain, VerbName.WAIT, incident_id=waiting, node_id=PEER, token="next", line=line
    )
    it._begun.append(waiting)
    resume, held = it.plain.workflows.resume, list[bool]()

    def called(token: str, result: StepResult) -> bool:
        if token == "next":
            held.append(BROKEN in it.plain.pools.holders("demo"))
        return resume(token, result)

    it.plain.workflows.resume = called  # type: ignore[method-assign, assignment]
    it.reports(xid(79))

    assert held == [False]


def test_a_job_is_over_only_when_nothing_of_it_is_left() -> None:
    """Of one that is over nobody looks after what is left: a function that dies before is called again."""

    def throttled(_: Moment) -> None:
        raise NotAccepted("too many calls")

    it = Moment("nodes.save", throttled)
    [task] = started_job(JOB, [node(BROKEN)], it.plain).tasks
    run = stored_run(it.plain, "llama", 1)
    assert it.plain.jobs.save_run(run.with_task(replace(task, task_id="task", status="RUNNING")))
    it.is_written(BROKEN, boot_id="boot-2", booted_at=NOW + timedelta(hours=1), job_id="llama")  # no rank is left
    last = JobResult(
        step=JobStep.STOP,
        job_id="llama",
        outcome=Outcome.DONE,
        then=Next.END,
        reason="stopped",
        finished_at=NOW,
        ending=JobState.CANCELLED,
        deadline_seconds=60,
    )
    asks = JobRequest(job_id="llama", submission=1, round=0, last=last)

    told = it.does(lambda: end_job(asks, it.ports))
    between = it.plain.jobs.get("llama")
    end_job(asks, it.plain)
    after = it.plain.jobs.get("llama")

    assert told == "too many calls"
    assert between is not None and not between.is_over
    assert after is not None and after.is_over
    assert [one.node_id for one in it.plain.nodes.in_pool("demo") if one.job_id] == []


def test_who_waits_for_a_gang_is_on_its_list_before_a_rank_is_asked_to_stop() -> None:
    """A function that dies right after it has asked leaves a wait that the end of the gang resumes."""
    it, mine = opened()
    started_job(JOB, [node(BROKEN)], it.plain)
    stop = scheduler_in(it.plain).stop_rank

    def dies(*asked: str) -> None:
        stop(*asked)
        raise Died

    scheduler_in(it.plain).stop_rank = dies
    with pytest.raises(Died):
        stop_gang(mine.model_copy(update={"task_token": "token"}), it.plain, ACTS)
    run = stored_run(it.plain, "llama", 1)
    [task] = run.tasks

    on_task_change(TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", 143, ""), it.plain)

    assert "token" in it.plain.workflows.resumed  # type: ignore[attr-defined]


def test_that_a_group_was_asked_is_on_record_before_it_is() -> None:
    """A function that dies right after it has asked is called again, and EC2 shows a machine for long that is to go."""
    it = Pool()
    terminate_instance, shown = it.machines.terminate_instance, it.machines.machines[EC2]

    def dies(*asked: object) -> None:
        terminate_instance(*asked)
        it.machines.machines[EC2] = shown
        raise Died

    it.machines.terminate_instance = dies
    with pytest.raises(Died):
        it.replaces()
    it.machines.terminate_instance = terminate_instance

    it.replaces(token="again")

    assert [name for name, _ in it.given_back] == [EC2]
