"""A gang is launched: once, by those who may, on nodes that are fit, and beside nobody who still writes.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.runs import may_write
from nodeheal.services.recovery import read_situation
from tests.support.builders import NOW, node, started_job, stored_run, xid
from tests.support.fake_cluster import BROKEN
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import (
    peers_fault,
    world,
    wrong_with,
)

HOUR = 3_600


def a_node_of_the_gang_fails_before_its_launch() -> list[str]:
    """Whoever heals it brings the job back."""
    it = world()
    it.meanwhile["launch_gang"] = [lambda: it._ingest(peers_fault())]
    it.reports(xid(31))
    run = it.plain.jobs.get_run("llama", 2)
    is_theirs = run is not None and run.why.startswith(incident_id_of(peers_fault()))
    return wrong_with(it, (is_theirs, "a rank was started on a node that had just failed"))


def an_older_run_is_told_to_have_ended_while_the_next_one_is_down() -> list[str]:
    """The job is to be started again where its last run was; nothing else may start there."""
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    first = stored_run(it.plain, "llama", 1)
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
    is_broken = read_situation._is_broken(JOB, run.with_task(began), up_again)
    return ["a node whose job runs is to be isolated for what was before its boot"] if is_broken else []
