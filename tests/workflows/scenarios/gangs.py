"""Ranks, runs and nodes of a job that are begun, given up or taken by others, and who may go on with them.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import Ending, IncidentState, JobState, JobStep, Next, Outcome
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.job import CheckAnswer, Run
from nodeheal.operations import launch_gang
from nodeheal.operations.steps import launch_job, stop_gang
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.job_nodes import ASKED_AGAIN_SECONDS, claim, replacement_nodes
from nodeheal.services.jobs.job_steps import job_result
from nodeheal.services.jobs.start_gang import abandon
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.services.operators.operator_guardrails import pause_node
from tests.unit.builders import NOW, node, scheduler_in, started_job, xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.fuse import InjectedFailure
from tests.workflows.job_cluster import NODES, JobCluster, fails, finishes, is_recovered
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import made_of, peers_fault, world
from tests.workflows.scenarios.turns import opened
from tests.workflows.stories import MOVES


def _runs_on(it: Moment, name: str, **job: object) -> Run:
    """A job of one rank, which runs there."""
    started_job(replace(JOB, **job), [node(name)], it.plain)  # type: ignore[arg-type]
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    it.plain.jobs.save_run(replace(run, tasks=tuple(replace(task, status="RUNNING") for task in run.tasks)))
    found = it.plain.jobs.get_run("llama", 1)
    assert found is not None
    return found


# Ranks


def a_rank_was_started_and_not_noted() -> list[str]:
    of = [
        n for n, made in enumerate(made_of(3)) if (made.function, made.call) == ("launch_gang", "scheduler.start_rank")
    ]
    it = world(ACTS, InjectedFailure(of[-1], is_after=True, error=NotAccepted))
    it.reports(xid(31))
    started = [made for made in it.fuse.made if (made.function, made.call) == ("launch_gang", "scheduler.start_rank")]
    return [] if len(started) == 2 else [f"{len(started)} tasks were started for two ranks"]


def a_launch_breaks_off_between_its_run_and_its_job() -> list[str]:
    """It is called again, and goes on with the run that it has recorded."""
    it = world()

    def throttled() -> None:
        raise NotAccepted("too many calls")

    it.fuse.meanwhile["launch_gang", "jobs.save"] = throttled
    it.reports(xid(31))
    runs = [run.number for run in it.plain.jobs.runs("llama")]
    return [] if runs == [1, 2] else [f"{runs} are on record, for one relaunch"]


def a_launch_is_given_up_when_one_rank_runs() -> list[str]:
    it = Moment()
    _runs_on(it, BROKEN)
    it.does(lambda: abandon(replace(JOB, version=1), 1, it.ports))
    run = it.plain.jobs.get_run("llama", 1)
    return [] if run is not None and not run.has_ended else ["a rank that runs was taken for one never started"]


def the_gang_has_left_the_node_that_is_isolated() -> list[str]:
    it, mine = opened()
    _runs_on(it, PEER)
    asks = mine.model_copy(update={"task_token": "token"})
    it.does(lambda: stop_gang(asks, it.ports, ACTS))
    stopped = scheduler_in(it.plain).stopped
    return [f"{name} was stopped, which has nothing to do with it" for name in stopped]


def a_job_is_over_when_its_last_rank_stops() -> list[str]:
    it = world()
    job = it.plain.jobs.get("llama")
    assert job is not None
    it.plain.jobs.save(replace(job, state=JobState.CANCELLED))
    it._gang_becomes("STOPPED")
    job = it.plain.jobs.get("llama")
    is_over = job is not None and job.state is JobState.CANCELLED
    return [] if is_over else ["a job that a person has stopped is brought back"]


# Nodes


def a_node_gets_an_incident_before_its_job_is_launched() -> list[str]:
    it, fails_then = JobCluster(), list[str]()

    def fault(cluster: JobCluster) -> None:
        name = next(name for name in NODES if cluster.node(name).claimed_by == "llama")
        fails_then.append(name)
        ingest(xid(79, node_id=name, instance_id=name), cluster.ports, cluster.policy)

    it.before["Launch job"] = fault
    it.happenings = [finishes]
    it.submit()
    on = [task.node_id for task in it.run.tasks]
    return [] if fails_then and fails_then[0] not in on else [f"started on {on}, of which {fails_then} has just failed"]


def a_rank_of_its_last_submission_may_still_write() -> list[str]:
    it = Moment()
    _runs_on(it, BROKEN)
    it.job_is_written(state=JobState.SUBMITTED, submission=2)
    it.is_written(PEER, claimed_by="llama")
    first = JobRequest(job_id="llama", submission=2, round=0)
    chosen = job_result(first, JobStep.CHOOSE, Next.LAUNCH, "chosen", it.plain).model_copy(update={"nodes": (PEER,)})
    launch = first.model_copy(update={"last": chosen, "task_token": "token"})
    it.does(lambda: launch_job(launch, it.ports, ACTS))
    return [] if it.plain.jobs.get_run("llama", 2) is None else ["it is started beside a rank of its last run"]


def a_node_has_failed_its_check() -> list[str]:
    return _is_chosen_again(Outcome.FAILED)


def a_node_has_failed_its_check_long_ago() -> list[str]:
    return _is_chosen_again(Outcome.FAILED, hours=2)


def a_node_has_just_not_answered_its_check() -> list[str]:
    return _is_chosen_again(Outcome.UNKNOWN)


def a_node_has_not_answered_two_checks() -> list[str]:
    return _is_chosen_again(Outcome.UNKNOWN, hours=2, times=2)


def _is_chosen_again(outcome: Outcome, hours: float = 0, times: int = 1) -> list[str]:
    it = Moment()
    it.is_written(passed_at=None)
    for number in range(times):
        answer = CheckAnswer(f"llama-1-{number}", BROKEN, "boot-1", outcome, "said", NOW)
        it.plain.job_notes.note_answer("llama", answer)
    it.plain.clock.advance(hours * ASKED_AGAIN_SECONDS)  # type: ignore[attr-defined]
    found = it.does(lambda: claim(JOB, it.ports, ACTS))
    chosen = [one.node_id for one in found.nodes]
    return [f"{BROKEN} is chosen again"] if BROKEN in chosen else []


def a_node_that_it_has_claimed_has_failed() -> list[str]:
    """The call that claims is repeated; the list of the pool lags behind."""
    it = Moment()
    it.is_written(claimed_by="llama")
    listed = it.plain.nodes.in_pool("demo")
    ingest(xid(79), it.plain, ACTS)
    it.plain.nodes.in_pool = lambda pool: listed  # type: ignore[method-assign]
    found = it.does(lambda: claim(JOB, it.ports, ACTS))
    return ["a node with an incident is claimed"] if BROKEN in [one.node_id for one in found.nodes] else []


def the_free_nodes_are_too_small() -> list[str]:
    it = Moment()
    found = replacement_nodes(replace(JOB, accelerators=8), it.plain)
    return [f"{one.node_id} has too few accelerators" for one in found]


def the_only_free_node_is_opted_out_when_it_could_move() -> list[str]:
    it = world(MOVES.model_copy(update={"opted_out": {SPARE: "ours"}}))
    it.reports(xid(79))
    return ["a node that is opted out was tested"] if ("run-diagnostics", SPARE) in it.commands else []


# Who brings it back


def another_jobs_incident_was_handed_over() -> list[str]:
    it = JobCluster()

    def is_handed_over(cluster: JobCluster) -> None:
        name = NODES[3]
        ingest(xid(999, node_id=name, instance_id=name), cluster.ports, cluster.policy)

    it.happenings = [is_handed_over, is_recovered, fails(), is_recovered, finishes]
    it.submit()
    return [] if it.job.state is JobState.COMPLETED else [f"nobody brings it back: {it.job.summary}"]


def its_node_is_paused_when_it_fails() -> list[str]:
    it, early, paused = JobCluster(), list[bool](), list[str]()

    def is_paused(cluster: JobCluster) -> None:
        paused.append(cluster.run.tasks[1].node_id)
        pause_node(paused[0], 10**6, "hands off", cluster.ports)

    def while_paused(cluster: JobCluster) -> None:
        early.append(bool(cluster.ports.incidents.incidents))  # type: ignore[attr-defined]
        pause_node(paused[0], 0, "done", cluster.ports)
        sweep_jobs("demo", cluster.ports, cluster.policy)

    it.happenings = [is_paused, fails(), while_paused, is_recovered, finishes]
    it.submit()
    return [] if early == [False] else ["its failure is seen to while its node is paused"]


def who_could_bring_it_back_has_ended() -> list[str]:
    it, mine = opened()
    known = it.plain.incidents.history(mine.incident_id).incident
    ended = replace(known, state=IncidentState.ESCALATED, ending=Ending.HANDED_TO_A_HUMAN)
    it.plain.incidents.incidents[mine.incident_id] = replace(ended, job_id="llama")  # type: ignore[attr-defined]
    return _is_left(it, BROKEN)


def one_of_its_nodes_has_nobody() -> list[str]:
    it, mine = opened()
    known = it.plain.incidents.history(mine.incident_id).incident
    it.plain.incidents.incidents[mine.incident_id] = replace(known, job_id="llama")  # type: ignore[attr-defined]
    return _is_left(it, BROKEN, PEER)


def _is_left(it: Moment, *names: str) -> list[str]:
    """Another incident finds these nodes unfit for its launch."""
    ingest(peers_fault().model_copy(update={"node_id": SPARE, "instance_id": SPARE}), it.plain, ACTS)
    spare = it.plain.nodes.get(SPARE)
    assert spare is not None
    _, mine = opened()
    asks = mine.model_copy(update={"incident_id": str(spare.open_incident)})
    unfit = [found for name in names if (found := it.plain.nodes.get(name)) is not None]
    left = launch_gang._left_to(asks, unfit, it.plain)
    return [f"it is left to {left}, and stays down"] if left else []
