"""A submitted job from its place in line to the failure that nobody brings it back from.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import JobState
from nodeheal.services.jobs.start_gang import find_unnoted, record_run
from nodeheal.services.operators.ask_to_stop import ask_to_stop
from tests.support.builders import node, stored_run, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE
from tests.support.job_cluster import NODES, JobCluster, fails, finishes, is_recovered
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import world
from tests.workflows.stories import MOVES, OTHER

FIRST = JobRequest(job_id="llama", submission=1, round=0)


# Until it starts


def a_person_stops_it_before_its_launch() -> list[str]:
    it = JobCluster()
    it.before["Launch job"] = lambda it: ask_to_stop("llama", "ada: the wrong data", it.ports)
    it.happenings = [finishes]
    it.submit()
    return [] if it.job.current_run == 0 else ["a job was started that a person had stopped"]


def a_person_stops_it_when_it_has_failed() -> list[str]:
    it = JobCluster()
    it.before["Attribute failure"] = lambda it: ask_to_stop("llama", "ada: the wrong data", it.ports)
    it.happenings = [fails(), is_recovered, finishes]
    it.submit()
    opened = it.ports.incidents.incidents  # type: ignore[attr-defined]
    return [f"{name} is to bring back what a person has stopped" for name in opened]


def its_last_rank_runs_when_it_was_waited_for_long_enough() -> list[str]:
    """The event comes when the wait for it is over."""
    it = JobCluster()
    it.never_start = {NODES[1]}
    it.before["Attribute failure"] = lambda it: it.becomes(1, "RUNNING")
    it.happenings = [finishes]
    it.submit()
    return [] if it.job.state is JobState.COMPLETED else [f"it runs, and is stopped: {it.job.summary}"]


def a_rank_is_stopped_before_another_is_looked_for() -> list[str]:
    """The scheduler does not list it any more, and it has not been told to have ended."""
    it = Moment()
    it.plain.jobs.save(replace(JOB, nodes=2))
    record_run(replace(JOB, nodes=2, version=1), [node(BROKEN), node(PEER)], "mine", it.plain)
    run = stored_run(it.plain, "llama", 1)
    noted = run.with_task(replace(run.tasks[0], task_id="task-llama-1-0"))
    it.plain.jobs.save_run(noted)
    it.does(lambda: find_unnoted(JOB, noted, it.ports))
    rank = stored_run(it.plain, "llama", 1).tasks[0]
    is_kept = rank.task_id == "task-llama-1-0" and not rank.has_stopped
    return [] if is_kept else ["a rank that was started is taken for one that never was"]


def _is_given_up(act: Callable[[Moment], object]) -> list[str]:
    """What was never started is over, whoever else writes its run."""

    def is_written(it: Moment) -> None:
        run = stored_run(it.plain, "llama", 1)
        it.plain.jobs.save_run(run)

    it = Moment("jobs.save_run", is_written)
    it.plain.jobs.save(JOB)
    record_run(replace(JOB, version=1), [node(BROKEN)], "mine", it.plain)
    it.does(lambda: act(it))
    run = it.plain.jobs.get_run("llama", 1)
    return [] if run is not None and run.has_ended else ["a rank that was never started is waited for"]


# Where it went on meanwhile


def _has_moved() -> BreakingWorld:
    """The job goes on where a free node has passed, before its own node is healed."""
    it = world(MOVES)
    it.plain.nodes.save(node(OTHER))
    return it


def its_replacement_node_reboots_after_its_proof() -> list[str]:
    it = _has_moved()
    it.meanwhile["launch_gang"] = [lambda: it._comes_up(SPARE, "boot-2")]
    it.reports(xid(79))
    return [] if it.node(SPARE).passed_at is None else ["a boot counts as proven that has passed nothing"]
