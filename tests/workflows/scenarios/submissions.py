"""A submitted job from its place in line to the failure that nobody brings it back from.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import NODES_LINE, pool_line
from nodeheal.contract.vocabulary import JobState, Next, VerbName
from nodeheal.services.jobs.choose_nodes import choose_nodes
from nodeheal.services.jobs.job_nodes import claim, job_checks_due, release_claims
from nodeheal.services.jobs.job_steps import save_job
from nodeheal.services.jobs.start_gang import abandon, find_unnoted, record_run
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.services.operators.ask_to_stop import ask_to_stop
from nodeheal.services.operators.operator_guardrails import pause_pool
from tests.unit.builders import NOW, job_under_way, node, xid
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.job_cluster import NODES, JobCluster, fails, finishes, is_recovered
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import changes, world
from tests.workflows.stories import MOVES, OTHER
from tests.workflows.walker import Error

FIRST = JobRequest(job_id="llama", submission=1, round=0)


# Until it starts


def another_job_stands_in_line() -> list[str]:
    it = Moment()
    it.plain.jobs.save(JOB)
    job_under_way(it.plain, VerbName.AWAIT_NODES, "urgent", line=(pool_line(NODES_LINE, "demo"), "000#first"))
    chosen = it.does(lambda: choose_nodes(FIRST, it.ports, ACTS))
    return [] if chosen.then is Next.AWAIT_NODES else [f"it has passed a job that stands in line: {chosen.reason}"]


def a_node_becomes_free_before_it_waits_for_one() -> list[str]:
    it, waited = JobCluster(pool_of=2), list[str]()

    def works_for(job_id: str | None) -> None:
        it.ports.nodes.save(replace(it.node(NODES[0]), job_id=job_id))

    works_for("another")
    it.before["Wait for nodes"] = lambda _: works_for(None)
    it.while_waiting = [lambda _: waited.append("it stands in line for nodes that are free")]
    it.happenings = [finishes]
    it.submit()
    return waited


def a_person_stops_it_before_it_starts() -> list[str]:
    it = JobCluster()
    it.before["Evaluate diagnostics"] = lambda it: ask_to_stop("llama", "ada: the wrong data", it.ports)
    it.happenings = [finishes]
    it.submit()
    return [] if it.job.current_run == 0 else ["a job was started that a person had stopped"]


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


def a_job_is_written_while_a_person_stops_it() -> list[str]:
    it = Moment("jobs.save", lambda it: it.job_is_written(priority=7))
    it.plain.jobs.save(JOB)
    it.does(lambda: ask_to_stop("llama", "ada", it.ports))
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.stop_wanted else ["his wish is lost"]


def its_checks_break_off() -> list[str]:
    """Nobody was given the time to answer."""
    it, breaks = JobCluster(), [Error("Lambda.Unknown")]
    checks = it._job_answers()["Check nodes"]
    it.job_breaks["Check nodes"] = lambda arguments: breaks.pop() if breaks else checks(arguments)
    it.happenings = [finishes]
    it.submit()
    opened = it.ports.incidents.incidents  # type: ignore[attr-defined]
    return [f"{name}: silence is held against a node that nobody has asked" for name in opened]


def a_node_has_rebooted_since_it_passed() -> list[str]:
    known = node(BROKEN, passed_at=NOW - timedelta(minutes=10), booted_at=NOW - timedelta(minutes=5))
    return [] if job_checks_due(JOB, [known], NOW) else ["it is started on a boot that has passed nothing"]


def another_job_has_a_node_that_is_let_go() -> list[str]:
    it = Moment()
    it.is_written(claimed_by="another")
    it.does(lambda: release_claims(JOB, it.ports, also=[BROKEN]))
    kept = it.plain.nodes.get(BROKEN)
    return [] if kept is not None and kept.claimed_by == "another" else ["the claim of another job was let go"]


def it_claims_what_it_wants() -> list[str]:
    it = Moment()
    found = it.does(lambda: claim(JOB, it.ports, ACTS))
    return it.of_another([one.node_id for one in found.nodes])


def a_run_that_is_given_up_is_written_meanwhile() -> list[str]:
    return _is_given_up(lambda it: abandon(replace(JOB, version=1), 1, it.ports))


def a_run_that_is_asked_after_is_written_meanwhile() -> list[str]:
    def is_asked_after(it: Moment) -> None:
        run = it.plain.jobs.get_run("llama", 1)
        assert run is not None
        find_unnoted(JOB, run, it.ports)

    return _is_given_up(is_asked_after)


def a_rank_is_stopped_before_another_is_looked_for() -> list[str]:
    """The scheduler does not list it any more, and it has not been told to have ended."""
    it = Moment()
    it.plain.jobs.save(replace(JOB, nodes=2))
    record_run(replace(JOB, nodes=2, version=1), [node(BROKEN), node(PEER)], "mine", it.plain)
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    noted = run.with_task(replace(run.tasks[0], task_id="task-llama-1-0"))
    it.plain.jobs.save_run(noted)
    it.does(lambda: find_unnoted(JOB, noted, it.ports))
    run = it.plain.jobs.get_run("llama", 1)
    is_kept = run is not None and run.tasks[0].task_id == "task-llama-1-0" and not run.tasks[0].has_stopped
    return [] if is_kept else ["a rank that was started is taken for one that never was"]


def _is_given_up(act: Callable[[Moment], object]) -> list[str]:
    """What was never started is over, whoever else writes its run."""

    def is_written(it: Moment) -> None:
        run = it.plain.jobs.get_run("llama", 1)
        assert run is not None
        it.plain.jobs.save_run(run)

    it = Moment("jobs.save_run", is_written)
    it.plain.jobs.save(JOB)
    record_run(replace(JOB, version=1), [node(BROKEN)], "mine", it.plain)
    it.does(lambda: act(it))
    run = it.plain.jobs.get_run("llama", 1)
    return [] if run is not None and run.has_ended else ["a rank that was never started is waited for"]


# When it fails


def its_program_fails_again() -> list[str]:
    """Its file allows one restart for that."""
    it = JobCluster(restarts={"of_application": 1})
    it.happenings = [fails(), is_recovered, fails(), is_recovered, finishes]
    it.submit()
    return [] if it.run.number == 2 else [f"it was started {it.run.number} times; one restart is allowed"]


def its_program_cannot_run() -> list[str]:
    it = JobCluster()
    it.happenings = [fails(exit_code=127), is_recovered, finishes]
    it.submit()
    return [] if it.run.number == 1 else ["what cannot run is started again"]


def its_pool_is_paused_when_it_fails() -> list[str]:
    it, early = JobCluster(), list[bool]()

    def while_paused(cluster: JobCluster) -> None:
        early.append(bool(cluster.ports.incidents.incidents))  # type: ignore[attr-defined]
        pause_pool("demo", 0, "done", cluster.ports)
        sweep_jobs("demo", cluster.ports, cluster.policy)

    it.happenings = [
        lambda cluster: pause_pool("demo", 10**6, "hands off", cluster.ports),
        fails(),
        while_paused,
        is_recovered,
        finishes,
    ]
    it.submit()
    return [] if early == [False] else ["its failure is seen to while its pool is paused"]


# Where it went on meanwhile


def _has_moved() -> BreakingWorld:
    """The job goes on where a free node has passed, before its own node is healed."""
    it = world(MOVES)
    it.plain.nodes.save(node(OTHER))
    return it


def its_replacement_node_is_anothers_by_the_end() -> list[str]:
    it = _has_moved()
    it.meanwhile["end_incident"] = [changes(it, SPARE, open_incident="inc-of-another")]
    it.reports(xid(79))
    held = it.node(SPARE).open_incident
    return [] if held == "inc-of-another" else ["a node of another incident was let go"]


def it_is_submitted_again_by_the_end() -> list[str]:
    it = _has_moved()

    def is_submitted() -> None:
        save_job(it.plain, "llama", state=JobState.SUBMITTED)
        changes(it, OTHER, claimed_by="llama")()

    it.meanwhile["end_incident"] = [is_submitted]
    it.reports(xid(79))
    return [] if it.node(OTHER).claimed_by == "llama" else ["what it has claimed for its new start was let go"]


def its_replacement_node_reboots_after_its_proof() -> list[str]:
    it = _has_moved()
    it.meanwhile["launch_gang"] = [lambda: it._comes_up(SPARE, "boot-2")]
    it.reports(xid(79))
    return [] if it.node(SPARE).passed_at is None else ["a boot counts as proven that has passed nothing"]
