"""A job that runs, ends, is stopped or waits for the end of a pause, and who is told of it.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited, JobState, JobStep, Next, Outcome, Step
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job import FoundCheckpoint, GangTask, Run
from nodeheal.domain.operation import job_owner
from nodeheal.domain.recovery.incident import decision_entry
from nodeheal.operations.engine import reconcile_all
from nodeheal.operations.steps import launch_gang, stop_job, watch_gang
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_stop_requested, on_task_change
from nodeheal.services.jobs.job_steps import job_result
from nodeheal.services.jobs.runs import await_end, may_write, recovery_of
from nodeheal.services.jobs.submit_job import submit_job
from nodeheal.services.jobs.sweep_jobs import START_SECONDS, sweep_jobs
from nodeheal.services.operators.ask_to_stop import ask_to_stop
from nodeheal.services.operators.operator_guardrails import pause_pool
from nodeheal.services.recovery.wait_for_news import wait_for_news, waiting_for_news
from tests.unit.builders import NOW, commands_in, node, scheduler_in, started_job, xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.job_cluster import JobCluster, finishes
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import RECOVERED, ends_as, world, wrong_with
from tests.workflows.scenarios.turns import opened
from tests.workflows.walker import Error

REQUEST = JobRequest(job_id="llama", submission=1, round=0, task_token="token")


def _runs_on(it: Moment, *names: str) -> Run:
    """The job runs on these nodes."""
    nodes = [found for name in names if (found := it.plain.nodes.get(name)) is not None]
    started_job(replace(JOB, nodes=len(names)), nodes, it.plain)
    for name in names:
        _becomes(it, name, "RUNNING")
    return _run(it)


def _run(it: Moment) -> Run:
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    return run


def _becomes(it: Moment, name: str, status: str, exit_code: int | None = None, seconds: int = 0) -> None:
    task, at = next(task for task in _run(it).tasks if task.node_id == name), NOW + timedelta(seconds=seconds)
    on_task_change(TaskChange("llama", 1, task.task_id, task.placement, status, exit_code, "", at), it.plain)


# Ranks that end


def the_first_of_two_ranks_to_break_is_told_last() -> list[str]:
    it = Moment()
    _runs_on(it, BROKEN, PEER)
    _becomes(it, BROKEN, "STOPPED", 139, seconds=20)
    _becomes(it, PEER, "STOPPED", 139)
    broke = first_failure(_run(it))
    return [] if broke is not None and broke.task.node_id == PEER else ["who broke second is taken for the cause"]


def one_rank_is_done_while_an_incident_waits_for_its_job() -> list[str]:
    """The other one trains on."""
    it, mine = opened()
    _runs_on(it, BROKEN, PEER)
    known = it.plain.incidents.history(mine.incident_id).incident
    it.plain.incidents.incidents[mine.incident_id] = replace(known, job_id="llama", turn=1)  # type: ignore[attr-defined]
    it.is_written(open_incident=mine.incident_id)
    waits = Decision(step=Step.WAIT, reason="it may finish", node_id=BROKEN, awaits=Awaited.JOB_END, events_seen=1)
    wait_for_news(StepRequest(incident_id=mine.incident_id, turn=1, decision=waits, task_token="token"), it.plain)
    _becomes(it, PEER, "STOPPED", 0)
    return [] if waiting_for_news(mine.incident_id, it.plain) is not None else ["it goes on while the job trains"]


def a_rank_breaks_and_the_job_is_to_be_restarted() -> list[str]:
    it = Moment()
    _runs_on(it, BROKEN)
    it.job_is_written(checkpoints=Checkpoints(directory="/fsx/llama"))
    it.plain.job_notes.hold("/fsx/llama", "llama")
    _becomes(it, BROKEN, "STOPPED", 1)
    return [] if it.plain.job_notes.hold("/fsx/llama", "another") == "llama" else ["two may write to one directory"]


# Ranks that are stopped, and started


def an_old_fault_of_its_node_is_heard_when_it_has_been_submitted() -> list[str]:
    """Nobody has restarted it: whoever heals the node stops it first."""
    it = world()
    it.reports(xid(79, observed_at=NOW - timedelta(minutes=1)))
    stopped = scheduler_in(it.plain).stopped
    return wrong_with(it, ends_as(it, *RECOVERED), (bool(stopped), "its node was rebooted under it"))


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


def a_node_of_a_job_that_is_stopped_has_rebooted() -> list[str]:
    """Nobody has told that its rank is gone, and nobody will."""
    it = Moment()
    _runs_on(it, BROKEN)
    it.is_written(boot_id="boot-2", booted_at=NOW + timedelta(minutes=5))
    last = job_result(REQUEST, JobStep.WATCH, Next.STOP, "stopped by a person: ada", it.plain)
    it.does(lambda: stop_job(REQUEST.model_copy(update={"last": last}), it.ports))
    resumed = it.plain.workflows.resumed  # type: ignore[attr-defined]
    return [] if "token" in resumed else ["a rank is waited for that a reboot has ended"]


def it_starts_where_nothing_was_saved() -> list[str]:
    it = world()
    told = scheduler_in(it.plain).environments["task-llama-1-0"]
    return [f"{name}: there is nothing to go on from" for name in told if name.startswith("NODEHEAL_RESUME")]


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


def a_job_of_nobody_is_brought_back() -> list[str]:
    it = world()
    it.reports(xid(79))
    timeline = it.plain.incidents.history(it.incident_id).timeline
    told = [entry.text for entry in timeline if entry.entry_id.startswith("owner-not-told")]
    return wrong_with(it, ends_as(it, *RECOVERED), (not told, f"{told}: nobody was to be told"))


def _is_held() -> Moment:
    """Its rank has broken while its pool is paused."""
    it = Moment()
    _runs_on(it, BROKEN)
    it.does(lambda: watch_gang(REQUEST, it.ports))
    pause_pool("demo", 10**4, "hands off", it.plain)
    _becomes(it, BROKEN, "STOPPED", 1)
    return it


def a_person_stops_a_job_that_waits_for_the_end_of_a_pause() -> list[str]:
    it = _is_held()
    ask_to_stop("llama", "ada: it is wrong anyway", it.plain)
    it.does(lambda: on_stop_requested("llama", it.ports))
    resumed = it.plain.workflows.resumed  # type: ignore[attr-defined]
    told = resumed.get("token")
    return [] if told is not None and told.then is Next.STOP else ["his wish waits for the end of the pause"]


def it_breaks_again_in_the_same_way_while_its_pool_is_paused() -> list[str]:
    """Its last run has been restarted since, and nobody has said that it runs."""
    it = _is_held()
    it.job_is_written(held_at=None)
    it.does(lambda: reconcile_all(job_owner("llama"), it.ports))
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.held_at is not None else ["the end of the pause wakes nobody"]


def an_incident_waits_for_a_slot_when_its_job_has_failed() -> list[str]:
    it, mine = opened()
    run = _runs_on(it, BROKEN)
    known = it.plain.incidents.history(mine.incident_id).incident
    it.plain.incidents.incidents[mine.incident_id] = replace(known, job_id="llama", turn=1)  # type: ignore[attr-defined]
    it.is_written(open_incident=mine.incident_id)
    waits = Decision(step=Step.WAIT, reason="it is full", node_id=BROKEN, awaits=Awaited.BUDGET)
    it.plain.incidents.append(mine.incident_id, decision_entry(1, waits, NOW))
    job = it.plain.jobs.get("llama")
    assert job is not None
    return [] if it.does(lambda: recovery_of(job, run, it.ports)) else ["two bring it back"]


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
        on_stop_requested("llama", cluster.ports)

    it.ports.nodes.save(node("mi-0000000e", job_id="another"))
    it.while_waiting = [passes]
    it.submit()
    return [f"{name} is started, and waits already" for name in again]


def nobody_wants_the_ways_between_its_nodes_tested() -> list[str]:
    it = JobCluster()
    it.happenings = [finishes]
    it.submit()
    tests = commands_in(it.ports).sent_of("test-fabric")
    return [f"{one.node_id} is loaded with a test that its pool does not want" for one in tests]
