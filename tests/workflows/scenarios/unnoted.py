"""A rank is started, and the note of it comes late or never: it may write all the same, and somebody has to end it."""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.jobs.job import Run
from nodeheal.operations.handler import VerbContext
from nodeheal.operations.stop_gang import plan, stop_ranks
from nodeheal.services.jobs.job_nodes import free_nodes, leave
from nodeheal.services.jobs.start_gang import abandon, find_unnoted, record_run, start_ranks
from tests.support.builders import NOW, node, scheduler_in, started_job, stored_job, stored_run
from tests.support.fake_cluster import BROKEN
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened

KNOWN = replace(JOB, version=1)
RANK = "task-llama-1-0"


def _recorded(it: Moment) -> Run:
    """Its run is on record, and no rank of it has been started yet."""
    it.plain.jobs.save(JOB)
    return record_run(KNOWN, [node(BROKEN)], "mine", it.plain)


def _given_up(it: Moment) -> None:
    run = stored_run(it.plain, "llama", 1)
    find_unnoted(KNOWN, run, it.plain)


def _runs_unknown(it: Moment) -> list[str]:
    run = stored_run(it.plain, "llama", 1)
    [task] = run.tasks
    left = [] if task.task_id == RANK and not task.has_stopped else ["a rank that may write is taken for over"]
    return left + _runs_on(it)


def _runs_on(it: Moment) -> list[str]:
    is_stopped = RANK in scheduler_in(it.plain).stopped
    return [] if is_stopped else ["it runs on, and nobody ends it"]


def a_run_was_given_up_that_is_there_when_its_launch_is_called_again() -> list[str]:
    """The scheduler did not list the task yet when it was looked for."""
    it = Moment()
    run = _recorded(it)
    _given_up(it)
    scheduler_in(it.plain).start_rank(KNOWN, run, run.tasks[0], {})
    stored = stored_run(it.plain, "llama", 1)
    it.does(lambda: start_ranks(KNOWN, stored, it.ports, ACTS))
    return _runs_unknown(it)


def a_launch_died_before_its_job_pointed_at_its_run() -> list[str]:
    """And the job was given up: nothing was started, and nobody will ever tell of an end."""
    it = Moment()
    first = started_job(JOB, [node(BROKEN, version=1)], it.plain)
    ended = replace(first, tasks=tuple(replace(task, status="STOPPED") for task in first.tasks))
    it.plain.jobs.save_run(replace(ended, version=2))
    it.plain.jobs.save_run(replace(first, number=2, why="a launch that died", version=0))
    it.job_is_written(state=JobState.FAILED)
    over = stored_job(it.plain, "llama")
    it.does(lambda: leave(over, it.ports))
    left = it.plain.nodes.get(BROKEN)
    return ["its node is kept from every job"] if left is not None and left.job_id else []


def a_launch_points_its_job_at_its_run_meanwhile() -> list[str]:
    """Whoever frees the nodes has read the job before."""
    it = Moment()
    _recorded(it)
    it.is_written(job_id="llama")
    it.does(lambda: free_nodes(JOB, [BROKEN], it.ports))
    kept = it.plain.nodes.get(BROKEN)
    return [] if kept is not None and kept.job_id else ["another job may start beside a rank that runs"]


def a_job_is_over_when_its_relaunch_is_refused() -> list[str]:
    it = Moment()
    _recorded(it)
    it.job_is_written(state=JobState.CANCELLED)
    it.does(lambda: abandon(KNOWN, 1, it.ports))
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.is_over else ["a job that a person has stopped is to be brought back"]


def _sent_before_a_boot() -> Moment:
    """The answer to its start was lost, with the function that had asked; its node went down before it could begin."""
    it = Moment()
    run = _recorded(it)
    scheduler_in(it.plain).start_rank(KNOWN, run, run.tasks[0], {})
    it.is_written(boot_id="boot-2", booted_at=NOW + timedelta(seconds=300))
    return it


def a_rank_that_was_never_noted_outlives_a_boot() -> list[str]:
    it, (_, mine) = _sent_before_a_boot(), opened()
    asks = mine.model_copy(update={"task_token": "token"})
    it.does(lambda: stop_ranks(plan(asks, it.ports), VerbContext(it.ports, ACTS)))
    return _runs_on(it)
