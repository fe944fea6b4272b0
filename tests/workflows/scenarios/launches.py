"""A gang is launched: once, by those who may, on nodes that are fit, and beside nobody who still writes.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.job_spec import RestartLimits
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import JobState, NodeState, VerbName
from nodeheal.domain.jobs.job import FoundCheckpoint, GangTask
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.ask_after_ranks import ask_after_ranks
from nodeheal.services.jobs.job_nodes import leave
from nodeheal.services.jobs.runs import may_write
from nodeheal.services.jobs.start_gang import record_run
from nodeheal.services.recovery import build_decision_context
from tests.unit.builders import NOW, gang_under_way, node, started_job, xid
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.fuse import Fuse
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import (
    RECOVERED,
    changes,
    ends_as,
    peers_fault,
    rank_ends,
    world,
    wrong_with,
)
from tests.workflows.stories import STORIES

HOUR = 3_600


def a_person_stops_the_job_before_its_launch() -> list[str]:
    it = world()
    it.meanwhile["launch_gang"] = [lambda: _job_is_written(it, state=JobState.CANCELLED)]
    it.reports(xid(31))
    return _not_relaunched(it)


def a_person_submits_the_job_again_before_its_launch() -> list[str]:
    """It was given up, and he does not wait for the recovery of its node."""
    it = world()
    it.meanwhile["launch_gang"] = [lambda: _job_is_written(it, state=JobState.SUBMITTED, submission=2)]
    it.reports(xid(31))
    return _not_relaunched(it)


def a_job_gets_no_further() -> list[str]:
    """Its last run began where the next one would."""
    it = world()
    found = FoundCheckpoint("/fsx/llama/100", 100, it.clock())
    _job_is_written(it, found=found, restarts=RestartLimits(without_progress=1))
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    it.plain.jobs.save_run(replace(run, resumed_from=found.path))
    it.reports(xid(31))
    return _not_relaunched(it)


def a_node_of_the_gang_is_retired_before_its_launch() -> list[str]:
    it = world()
    it.meanwhile["launch_gang"] = [changes(it, PEER, state=NodeState.RETIRED, job_id=None)]
    it.reports(xid(31))
    return _not_relaunched(it)


def a_node_of_the_gang_fails_before_its_launch() -> list[str]:
    """Whoever heals it brings the job back."""
    it = world()
    it.meanwhile["launch_gang"] = [lambda: it._ingest(peers_fault())]
    it.reports(xid(31))
    run = it.plain.jobs.get_run("llama", 2)
    is_theirs = run is not None and run.why.startswith(incident_id_of(peers_fault()))
    return wrong_with(it, (is_theirs, "a rank was started on a node that had just failed"))


def a_free_node_could_take_the_place_of_one_that_fails() -> list[str]:
    """It has passed lately; but nobody has decided that the job is to move."""
    it = world()
    changes(it, SPARE, passed_at=it.clock())()
    it.meanwhile["launch_gang"] = [lambda: it._ingest(peers_fault())]
    it.reports(xid(31))
    run = it.plain.jobs.get_run("llama", 2)
    on = [task.node_id for task in run.tasks] if run else []
    return ["a job has moved, and nobody has decided that"] if SPARE in on else []


def _job_is_written(it: BreakingWorld, **to: Any) -> None:
    job = it.plain.jobs.get("llama")
    assert job is not None
    it.plain.jobs.save(replace(job, **to))


def _not_relaunched(it: BreakingWorld) -> list[str]:
    return [] if it.plain.jobs.get_run("llama", 2) is None else ["it was launched once more"]


def the_sweep_asks_after_ranks_that_are_being_started() -> list[str]:
    """Their run is on record, and nobody waits for them yet."""
    it = world()
    it.fuse.meanwhile["launch_gang", "operations.save"] = lambda: ask_after_ranks(["demo"], it.plain)
    it.reports(xid(31))
    return wrong_with(it, ends_as(it, *RECOVERED))


def the_sweep_asks_after_ranks_that_take_long_to_start() -> list[str]:
    """Longer than most; and their workflow waits still."""
    it = Moment()
    it.plain.jobs.save(JOB)
    run = record_run(replace(JOB, version=1), [node(BROKEN)], "mine", it.plain)
    gang_under_way(it.plain, VerbName.LAUNCH_GANG, run, deadline_at=NOW + timedelta(hours=3))
    it.plain.clock.advance(2 * HOUR)  # type: ignore[attr-defined]
    it.does(lambda: ask_after_ranks(["demo"], it.ports))
    known = it.plain.jobs.get_run("llama", 1)
    return [] if known is not None and not known.has_ended else ["a rank that is about to start was given up"]


def ends_are_on_record_and_nobody_was_told() -> list[str]:
    """Each delivery of their events has died in between. The sweep asks after them."""
    it, told = world(), list[bool]()

    def only_written(request: StepRequest) -> None:
        run = it.plain.jobs.get_run("llama", 1)
        assert run is not None
        ended = tuple(replace(task, status="STOPPED", exit_code=143, stopped_at=it.clock()) for task in run.tasks)
        it.plain.jobs.save_run(replace(run, tasks=ended, ended_at=it.clock()))
        it.clock.advance(240)
        ask_after_ranks(["demo"], it.plain)
        told.append(request.task_token in it.plain.workflows.resumed)  # type: ignore[attr-defined]

    it._gang_stops = only_written  # type: ignore[method-assign]
    it.reports(xid(79))
    return [] if told[:1] == [True] else ["who waits for the end of the gang is not told"]


def a_boot_that_a_rank_was_started_on_is_heard_late() -> list[str]:
    it = Moment()
    task = GangTask(BROKEN, 0, "boot-1", "placement", "task", "RUNNING", asked_at=NOW)
    it.is_written(boot_id="boot-2", booted_at=NOW - timedelta(minutes=30))
    return [] if may_write(task, it.plain) else ["a rank that writes was taken for one that a reboot has ended"]


def a_rank_does_not_stop_and_its_node_reboots() -> list[str]:
    it = world()
    it.deaf = {BROKEN}
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED), (it.job_nodes == [BROKEN, PEER], "the job was not brought back"))


def a_rank_does_not_stop_and_its_machine_is_given_up() -> list[str]:
    it = STORIES[1].make(Fuse(writes_only=True))
    it.deaf = {BROKEN}
    it.reports(xid(74, **it.fault))
    return wrong_with(it, ends_as(it, *RECOVERED), (PEER in it.job_nodes, "the job was not brought back"))


def a_rank_may_still_write_when_its_node_is_to_be_freed() -> list[str]:
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    it.does(lambda: leave(replace(JOB, state=JobState.FAILED), it.ports))
    return _is_marked(it)


def an_older_run_is_told_to_have_ended_while_the_next_one_is_down() -> list[str]:
    """The job is to be started again where its last run was; nothing else may start there."""
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    first = it.plain.jobs.get_run("llama", 1)
    assert first is not None
    ended = tuple(replace(task, status="STOPPED", exit_code=1) for task in first.tasks)
    it.plain.jobs.save_run(replace(first, number=2, version=0, tasks=ended))
    it.job_is_written(current_run=2, state=JobState.STOPPED)
    [task] = first.tasks
    change = TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", 143, "")
    it.does(lambda: on_task_change(change, it.ports))
    return _is_marked(it)


def _is_marked(it: Moment) -> list[str]:
    kept = it.plain.nodes.get(BROKEN)
    return [] if kept is not None and kept.job_id == "llama" else ["another job may start beside a rank of this one"]


def one_rank_of_two_has_stopped() -> list[str]:
    it = world()
    rank_ends(it, "task-llama-1-0")
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.state is JobState.RUNNING else ["a job is settled while a rank of it runs"]


def a_rank_that_was_never_handed_over_outlives_a_boot() -> list[str]:
    """The scheduler hands it to the node when that is up again."""
    return _may_write_after_a_boot()


def a_rank_began_after_the_boot() -> list[str]:
    return _may_write_after_a_boot(status="RUNNING", started_at=BOOTED_AT + timedelta(seconds=30))


def a_rank_began_before_the_boot() -> list[str]:
    began = {"status": "RUNNING", "started_at": BOOTED_AT - timedelta(seconds=30)}
    return ["it is waited for, and has died with its node"] if _may_write_after_a_boot(**began) == [] else []


def a_rank_of_which_the_scheduler_has_said_nothing_is_of_a_boot_before() -> list[str]:
    known = _may_write_after_a_boot(task_id="")
    return ["it is waited for, and nobody can stop it"] if known == [] else []


BOOTED_AT = NOW + timedelta(seconds=300)


def _may_write_after_a_boot(**known: object) -> list[str]:
    it = Moment()
    [task] = started_job(JOB, [node(BROKEN, version=1)], it.plain).tasks
    it.is_written(boot_id="boot-2", booted_at=BOOTED_AT)
    said: dict[str, object] = {"task_id": "task", **known}
    rank = replace(task, **said)  # type: ignore[arg-type]
    return [] if may_write(rank, it.plain) else ["two runs of one job may write at once"]


def a_rank_runs_on_the_boot_after_the_one_it_was_sent_on() -> list[str]:
    it = Moment()
    run = started_job(JOB, [node(BROKEN, version=1)], it.plain)
    [task] = run.tasks
    began = replace(task, task_id="task", status="RUNNING", started_at=BOOTED_AT + timedelta(seconds=30))
    up_again = node(BROKEN, boot_id="boot-2", booted_at=BOOTED_AT)
    is_broken = build_decision_context._is_broken(JOB, run.with_task(began), up_again)
    return ["a node whose job runs is to be isolated for what was before its boot"] if is_broken else []
