"""A job that runs, ends, is stopped or waits for the end of a pause, and who is told of it.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import JobState, Outcome, Step
from nodeheal.domain.jobs.job import FoundCheckpoint, GangTask, Run
from nodeheal.domain.operation import job_owner
from nodeheal.operations.engine import reconcile_all
from nodeheal.operations.steps import launch_gang, watch_gang
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.runs import await_end, may_write
from nodeheal.services.jobs.submit_job import submit_job
from nodeheal.services.jobs.sweep_jobs import START_SECONDS, sweep_jobs
from nodeheal.services.operators.ask_to_stop import ask_to_stop
from nodeheal.services.operators.operator_guardrails import pause_pool
from tests.support.builders import NOW, node, scheduler_in, started_job, stored_run
from tests.support.fake_cluster import BROKEN, PEER
from tests.support.job_cluster import JobCluster
from tests.support.walker import Error
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened

REQUEST = JobRequest(job_id="llama", submission=1, round=0, task_token="token")


def _runs_on(it: Moment, *names: str) -> Run:
    """The job runs on these nodes."""
    nodes = [found for name in names if (found := it.plain.nodes.get(name)) is not None]
    started_job(replace(JOB, nodes=len(names)), nodes, it.plain)
    for name in names:
        _becomes(it, name, "RUNNING")
    return _run(it)


def _run(it: Moment) -> Run:
    return stored_run(it.plain, "llama", 1)


def _becomes(it: Moment, name: str, status: str, exit_code: int | None = None, seconds: int = 0) -> None:
    task, at = next(task for task in _run(it).tasks if task.node_id == name), NOW + timedelta(seconds=seconds)
    on_task_change(TaskChange("llama", 1, task.task_id, task.placement, status, exit_code, "", at), it.plain)


# Ranks that end


def a_rank_breaks_and_the_job_is_to_be_restarted() -> list[str]:
    it = Moment()
    _runs_on(it, BROKEN)
    it.job_is_written(checkpoints=Checkpoints(directory="/fsx/llama"))
    it.plain.job_notes.hold("/fsx/llama", "llama")
    _becomes(it, BROKEN, "STOPPED", 1)
    return [] if it.plain.job_notes.hold("/fsx/llama", "another") == "llama" else ["two may write to one directory"]


# Ranks that are stopped, and started


def it_was_moved_away_before_its_node_failed() -> list[str]:
    """The incident was told that the job runs there, and brings it back when the node is healed."""
    it, mine = opened()
    run = _runs_on(it, PEER)
    it.plain.jobs.save_run(replace(run, why="inc-of-another/3", started_at=NOW - timedelta(hours=1)))
    decision = mine.decision.model_copy(update={"step": Step.RESTART_WORKLOAD})
    asks = mine.model_copy(update={"decision": decision, "task_token": "token"})
    it.does(lambda: launch_gang(asks, it.ports, ACTS))
    seen = it.plain.workflows.resumed["token"]  # type: ignore[attr-defined]
    return [] if seen.outcome is Outcome.DONE else [f"a human has it, and it runs: {seen.reason}"]


def the_clock_of_a_node_is_ahead() -> list[str]:
    """By its own clock it came up after its rank was started."""
    it = Moment()
    it.is_written(booted_at=NOW + timedelta(seconds=30))
    task = GangTask(BROKEN, 0, "boot-1", "placement", "task", "RUNNING", asked_at=NOW)
    return [] if may_write(task, it.plain) else ["a rank that writes was taken for one that a reboot has ended"]


def a_stop_is_asked_for_twice() -> list[str]:
    it = Moment()
    run = _runs_on(it, BROKEN)
    for _ in range(2):
        it.does(lambda: await_end(run, "inc-1", it.ports))
    listed = _run(it).end_awaited_by
    return [] if listed == ("inc-1",) else [f"{listed}: each is told of each rank's end"]


def it_goes_on_from_a_checkpoint_without_a_number() -> list[str]:
    it = Moment()
    found = FoundCheckpoint("/fsx/llama/final", None, NOW, written_at=NOW)
    job = replace(JOB, checkpoints=Checkpoints(directory="/fsx/llama"), checkpoints_inside="/data", found=found)
    started_job(job, [node(BROKEN, version=1)], it.plain)
    told = scheduler_in(it.plain).environments["task-llama-1-0"]
    resumes = {name: value for name, value in told.items() if name.startswith("NODEHEAL_RESUME")}
    wrong = [] if resumes == {"NODEHEAL_RESUME_FROM": "/data/final"} else [f"it is told to go on from {resumes}"]
    return wrong if _run(it).resumed_written_at == NOW else [*wrong, "what it loses cannot be told"]


# Watched


def _is_held() -> Moment:
    """Its rank has broken while its pool is paused."""
    it = Moment()
    _runs_on(it, BROKEN)
    it.does(lambda: watch_gang(REQUEST, it.ports))
    pause_pool("demo", 10**4, "hands off", it.plain)
    _becomes(it, BROKEN, "STOPPED", 1)
    return it


def it_breaks_again_in_the_same_way_while_its_pool_is_paused() -> list[str]:
    """Its last run has been restarted since, and nobody has said that it runs."""
    it = _is_held()
    it.job_is_written(held_at=None)
    it.does(lambda: reconcile_all(job_owner("llama"), it.ports))
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.held_at is not None else ["the end of the pause wakes nobody"]


# Submitted


def a_job_that_has_ended_is_submitted_as_it_was() -> list[str]:
    """An execution's name may be used again after 90 days."""
    it = Moment()
    it.plain.jobs.save(replace(JOB, state=JobState.COMPLETED))
    it.does(lambda: submit_job(JOB, it.ports, is_idempotent=True))
    return [f"{name} was started, and is over" for name, _ in it.plain.workflows.jobs_started]  # type: ignore[attr-defined]


def its_first_step_breaks() -> list[str]:
    """It is a human's before anything was noted of it."""
    it = JobCluster()
    it.job_breaks["Choose nodes"] = Error("Lambda.Unknown")
    it.submit()
    it.clock.advance(2 * START_SECONDS)
    sweep_jobs("demo", it.ports, it.policy)
    live = [job.job_id for job in it.ports.job_notes.in_pool("demo", live_only=True)]
    return [f"{name} is looked after for ever" for name in live]


def it_waits_for_nodes_when_the_sweep_passes() -> list[str]:
    it, again = JobCluster(pool_of=1), list[str]()

    def passes(cluster: JobCluster) -> None:
        cluster.clock.advance(2 * START_SECONDS)
        again.extend(sweep_jobs("demo", cluster.ports, cluster.policy))
        ask_to_stop("llama", "ada", cluster.ports)
        reconcile_all(job_owner("llama"), cluster.ports)

    it.ports.nodes.save(node("mi-0000000e", job_id="another"))
    it.while_waiting = [passes]
    it.submit()
    return [f"{name} is started, and waits already" for name in again]
