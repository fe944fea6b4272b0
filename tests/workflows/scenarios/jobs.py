"""Ranks that may still write, and words about them that come late.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import JobState
from nodeheal.ports.scheduler import RankStatus, TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs.ask_after_ranks import ask_after_ranks
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.jobs.start_gang import record_run, start_ranks
from nodeheal.services.jobs.submit_job import restart_job
from tests.unit.builders import scheduler_in, xid
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.job_cluster import JobCluster, finishes
from tests.workflows.scenarios.setup import RECOVERED, changes, ends_as, rank_ends, world, wrong_with


def a_gpu_is_lost() -> list[str]:
    it = world()
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED), (it.job_nodes == [BROKEN, PEER], "the job was not brought back"))


def a_person_has_restarted_it_elsewhere() -> list[str]:
    """While the node was healed. The gang is not there any more, so there is nothing to stop, and nothing to start."""
    it = world()

    def restarts() -> None:
        job = it.plain.jobs.get("llama")
        assert job is not None
        run = record_run(job, [it.node(SPARE), it.node(PEER)], "submitted again", it.plain)
        start_ranks(replace(job, current_run=run.number), run, it.plain, it.policy)
        it._gang_becomes("RUNNING")

    it.meanwhile["stop_gang"] = [restarts]
    it.reports(xid(79))
    return list(it.wrong)


def another_incident_has_restarted_it() -> list[str]:
    it = world()
    it._ingest(xid(31))
    it._ingest(xid(43, node_id=PEER, instance_id=PEER, event_id="peer"))
    it.clock.advance(60)
    it.walk_what_was_started()
    _, run = current_run("llama", it.plain)
    is_once = run is not None and run.number == 2
    told = "one fault that two ranks report restarted twice"
    return wrong_with(it, ends_as(it, *RECOVERED, *RECOVERED), (is_once, told))


def its_next_run_shows_the_fault_again() -> list[str]:
    """One incident has restarted the job, and another one's fault comes again on that run: it needs another restart."""
    it = world()
    it._ingest(xid(31))
    it._ingest(xid(43, node_id=PEER, instance_id=PEER, event_id="peer"))

    def again() -> None:
        it.clock.advance(60)
        it._ingest(xid(43, node_id=PEER, instance_id=PEER, event_id="again", observed_at=it.clock()))

    it.clock.advance(60)
    it.meanwhile["end_incident"] = [again]
    it.walk_what_was_started()
    _, run = current_run("llama", it.plain)
    is_twice = run is not None and run.number == 3
    return wrong_with(it, ends_as(it, *RECOVERED, *RECOVERED), (is_twice, "a run that has failed is left as it is"))


def a_rank_runs_after_it_stopped() -> list[str]:
    it = world()
    stops = it._gang_stops

    def and_is_said_to_run(request: StepRequest) -> None:
        stops(request)
        for task_id in list(it._gone):
            rank_ends(it, task_id, "RUNNING")

    it._gang_stops = and_is_said_to_run  # type: ignore[method-assign]
    it.reports(xid(31))
    return wrong_with(it, ends_as(it, *RECOVERED))


def an_older_task_stops() -> list[str]:
    it = world()
    task = next(iter(scheduler_in(it.plain).tasks.values()))
    it._wakes(wakeup.on_task_change, TaskChange("llama", 1, "task-of-before", task.placement, "STOPPED", 1, ""))
    _, run = current_run("llama", it.plain)
    return [] if run is not None and run.is_running else ["the end of another task was taken for the rank's"]


def a_machine_is_not_heard() -> list[str]:
    return _is_not_known(is_heard=False, seconds=7_200)


def a_task_is_not_known_yet() -> list[str]:
    return _is_not_known(is_heard=True, seconds=600)


def a_boot_is_not_heard_of_yet() -> list[str]:
    """What is on record of the node is of before the boot on which its rank was started."""
    return _is_not_known(is_heard=True, seconds=7_200, boot_id="boot-0")


def _is_not_known(*, is_heard: bool, seconds: float, boot_id: str = "boot-1") -> list[str]:
    """One rank has ended, and the scheduler does not know the other one."""
    it = world()
    changes(it, PEER, boot_id=boot_id)()
    scheduler: Any = scheduler_in(it.plain)
    (ended, first), (unknown, other) = scheduler.tasks.items()
    it._wakes(wakeup.on_task_change, TaskChange("llama", 1, ended, first.placement, "STOPPED", 1, ""))
    scheduler.seen[unknown] = RankStatus(unknown, "MISSING", is_connected=True)
    scheduler.disconnected |= set() if is_heard else {other.placement}
    it.clock.advance(seconds)
    ask_after_ranks(it.plain.fleet_index.pools(), it.plain)
    _, run = current_run("llama", it.plain)
    return ["a rank that may still write was taken for ended"] if run is None or run.has_ended else []


def an_older_run_ends_late() -> list[str]:
    """Nobody has told that a rank went down with its node, until the job runs again."""
    it = world()
    it.reports(xid(79))
    _, first = current_run("llama", it.plain)
    old = it.plain.jobs.get_run("llama", 1)
    assert first is not None
    assert old is not None
    for task in old.tasks:
        change = TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", 143, "")
        it._wakes(wakeup.on_task_change, change)
    job = it.plain.jobs.get("llama")
    is_up = job is not None and job.state is JobState.RUNNING
    return wrong_with(it, ends_as(it, *RECOVERED), (is_up, "the end of an older run has ended the job"))


def a_job_is_written_while_it_ends() -> list[str]:
    it = world()

    def is_written() -> None:
        job = it.plain.jobs.get("llama")
        assert job is not None
        it.plain.jobs.save(replace(job, summary="run 1 is under way"))

    it.fuse.meanwhile["wakeup.on_task_change", "jobs.save"] = is_written
    it._gang_finishes()
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.state is JobState.COMPLETED else ["a job that has ended well is not over"]


def a_job_is_started_again_while_it_runs() -> list[str]:
    it = JobCluster()

    def again(cluster: JobCluster) -> None:
        with suppress(ValueError):
            restart_job(cluster.spec.name, cluster.ports)

    it.happenings = [again, finishes]
    try:
        it.submit()
    except ValueError as surprise:  # of its first workflow
        return [str(surprise)]
    return [] if it.job.submission == 1 else ["a job was submitted again while it runs"]
