"""A run that hangs: every rank's node says so, and that is one incident and one restart."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import TRAINING_SLOWED
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import Ending, Family, JobFindingKind, JobState, NodeState, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.jobs.job import Hang
from nodeheal.domain.jobs.restarts import HANGS_OF_ONE_NODE
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Evidence, Mode, SlowJobs
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.jobs.look_at_training import look_at_training
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, scheduler_in, searches_in, xid
from tests.support.job_cluster import NODES, Happening, JobCluster, finishes, is_recovered

A, B, C, _ = NODES
OBSERVES = ACT.model_copy(update={"default_pool": ACT.default_pool.model_copy(update={"mode": Mode.observe})})
SAVING = ACT.model_copy(update={"evidence": Evidence()})


def hang(it: JobCluster, node_id: str, component: str = "llama/1", verdict: Verdict = Verdict.FAILED) -> HealthEvent:
    return xid(
        0,
        family=Family.host,
        code="training_hang",
        subcode=None,
        component=component,
        verdict=verdict,
        node_id=node_id,
        instance_id=node_id,
        event_id=f"hang-{node_id}-{component}",
        observed_at=it.clock(),
    )


def report(it: JobCluster, node_id: str, component: str = "llama/1") -> Ingested:
    it.clock.advance(1)
    return ingest(hang(it, node_id, component), it.ports, it.policy)


def hung(policy: RecoveryPolicy = ACT) -> tuple[JobCluster, list[Ingested]]:
    """A job on A and B that hangs, says so on both, is recovered and ends well; and what became of the reports."""
    it, took = JobCluster(policy=policy, hang_seconds=600), list[Ingested]()

    def hangs(cluster: JobCluster) -> None:
        took.extend(report(cluster, name) for name in (A, B))

    it.happenings = [hangs, is_recovered, finishes]
    return it, took


def incidents(it: JobCluster) -> list[str]:
    started: list[str] = it.ports.workflows.started  # type: ignore[attr-defined]
    return started


def test_every_rank_is_told_what_to_touch() -> None:
    it, _ = hung()

    it.submit()

    given = [environment["NODEHEAL_PROGRESS_FILE"] for environment in scheduler_in(it.ports).environments.values()]
    assert given == [f"/run/nodeheal/progress/llama.{run}.600.json" for run in (1, 1, 2, 2)]


def test_a_job_whose_hangs_are_not_to_be_noticed_shows_its_steps_in_a_file_without_a_limit() -> None:
    it = JobCluster()
    it.happenings = [finishes]

    it.submit()

    given = {environment["NODEHEAL_PROGRESS_FILE"] for environment in scheduler_in(it.ports).environments.values()}
    assert given == {"/run/nodeheal/progress/llama.1.steps"}


def test_a_hang_that_every_node_reports_is_one_incident_and_one_restart() -> None:
    it, took = hung()

    seen = it.submit()

    assert took == [Ingested.OPENED, Ingested.JOINED]
    [incident_id] = incidents(it)
    history = it.ports.incidents.history(incident_id)
    assert [event.node_id for event in history.events] == [A, B]
    assert history.incident.ending is Ending.RECOVERED
    assert (seen.end, it.run.number) == ("Completed", 2)
    assert it.is_clean


def test_a_hang_whose_first_report_broke_off_when_its_incident_was_open_is_one_incident_all_the_same() -> None:
    it, took = hung()
    note, broken = it.ports.job_notes.note_hang, list[str]()

    def throttled_once(hang: Hang) -> None:
        if not broken:
            broken.append(hang.run)
            raise NotAccepted("too many calls")
        note(hang)

    def hangs(cluster: JobCluster) -> None:
        with pytest.raises(NotAccepted):
            report(cluster, A)
        took.extend(report(cluster, name) for name in (A, B))

    it.ports.job_notes.note_hang = throttled_once  # type: ignore[method-assign]
    it.happenings[0] = hangs

    seen = it.submit()

    assert (broken, took) == (["llama/1"], [Ingested.DUPLICATE, Ingested.JOINED])
    assert (len(incidents(it)), seen.end, it.run.number) == (1, "Completed", 2)


def test_a_report_that_comes_after_the_restart_is_history() -> None:
    it, took = hung()
    it.happenings[-1:] = [lambda cluster: took.append(report(cluster, B)), finishes]

    it.submit()

    assert took[-1] is Ingested.HISTORY
    assert len(incidents(it)) == 1


def test_a_second_hang_is_an_incident_of_its_own() -> None:
    it, took = hung()

    def hangs_again(cluster: JobCluster) -> None:
        cluster.clock.advance(700)
        took.extend(report(cluster, name, "llama/2") for name in (B, A))

    it.happenings[-1:] = [hangs_again, is_recovered, finishes]

    it.submit()

    assert took[2:] == [Ingested.OPENED, Ingested.JOINED]
    assert (len(incidents(it)), it.run.number) == (2, 3)


def test_what_a_job_has_left_on_a_node_that_another_one_uses_is_history() -> None:
    it, _ = hung()
    it.submit()
    save_node(it.ports, it.node(A), job_id="other")

    assert report(it, A, "llama") is Ingested.HISTORY
    assert it.node(A).open_incident is None


def test_a_hang_that_names_no_run_is_of_the_one_that_runs() -> None:
    it, took = hung()
    it.happenings[0] = lambda cluster: took.append(report(cluster, A, "llama"))

    it.submit()

    assert took == [Ingested.OPENED]


def test_a_hang_where_no_job_of_ours_runs_is_news() -> None:
    it = JobCluster()

    assert report(it, A, "theirs/3") is Ingested.OPENED


def test_a_node_outside_of_the_run_opens_no_hang_of_it_and_swallows_none() -> None:
    """S7: the run's own report was only added to the closed incident of a stranger, and the job never restarted."""
    it, took = hung()
    own = it.happenings[0]

    def forged(cluster: JobCluster) -> None:
        took.append(report(cluster, C))
        own(cluster)

    it.happenings[0] = forged

    seen = it.submit()

    assert took == [Ingested.HISTORY, Ingested.OPENED, Ingested.JOINED]
    assert (len(incidents(it)), seen.end, it.run.number) == (1, "Completed", 2)


def test_a_hang_that_was_reported_before_there_was_such_a_job_swallows_none() -> None:
    it, took = hung()
    took.append(report(it, C))

    seen = it.submit()

    assert took == [Ingested.OPENED, Ingested.OPENED, Ingested.JOINED]
    assert (seen.end, it.run.number) == ("Completed", 2)


def test_a_hang_joins_no_closed_incident() -> None:
    it, took = hung(OBSERVES)

    def later(cluster: JobCluster) -> None:
        cluster.policy = ACT
        cluster.clock.advance(3_600)
        again = hang(cluster, B).model_copy(update={"event_id": "an hour later"})
        took.append(ingest(again, cluster.ports, cluster.policy))

    it.happenings[2:2] = [later, is_recovered]

    seen = it.submit()

    assert took == [Ingested.OPENED, Ingested.JOINED, Ingested.OPENED]
    assert (seen.end, it.run.number) == ("Completed", 2)


def test_one_nodes_word_alone_restarts_a_job_so_often_before_a_human_looks() -> None:
    """S7: it restarted the job ten times. What runs then goes on running."""
    it, took = hung()

    def hangs(cluster: JobCluster) -> None:
        cluster.clock.advance(7_000)
        took.append(report(cluster, A, f"llama/{cluster.run.number}"))

    it.happenings = [*[hangs, is_recovered] * (HANGS_OF_ONE_NODE + 1), finishes]

    seen = it.submit()

    assert took == [Ingested.OPENED] * (HANGS_OF_ONE_NODE + 1)
    assert (seen.end, it.run.number) == ("Completed", HANGS_OF_ONE_NODE + 1)
    assert not {task.task_id for task in it.run.tasks} & set(scheduler_in(it.ports).stopped)
    last = it.ports.incidents.history(incidents(it)[-1]).incident
    assert last.ending is Ending.HANDED_TO_A_HUMAN
    assert f"3 of 3 job restarts of llama for hangs that {A} alone reported" in last.summary


def test_what_two_nodes_report_is_no_single_nodes_word() -> None:
    it, took = hung()

    def hangs(cluster: JobCluster) -> None:
        cluster.clock.advance(7_000)
        took.extend(report(cluster, name, f"llama/{cluster.run.number}") for name in (A, B))

    it.happenings = [*[hangs, is_recovered] * (HANGS_OF_ONE_NODE + 1), finishes]

    seen = it.submit()

    assert (seen.end, it.run.number) == ("Completed", HANGS_OF_ONE_NODE + 2)


def test_stacks_are_saved_before_the_gang_is_stopped() -> None:
    it, _ = hung(SAVING)

    it.submit()

    [recovery] = [walk for walk in it.walked if walk.path[0] == "Open incident"]
    steps = [state for state in recovery.path if state in ("Freeze evidence", "Stop gang", "Isolate node")]
    assert steps == ["Freeze evidence", "Stop gang"]
    assert [name for verb, name in it.commands if verb == "freeze-evidence"] == [A]


def test_the_file_of_a_run_that_has_ended_hangs_nothing() -> None:
    it = JobCluster(hang_seconds=600)
    it.happenings = [finishes]
    it.submit()
    it.clock.advance(700)

    assert (report(it, A), incidents(it)) == (Ingested.HISTORY, [])


def shows(it: JobCluster, seconds: float, by_node: Mapping[str, dict[str, Any]]) -> None:
    """So much later, the nodes' heartbeats show this of the current run, and a sweep looks at it."""
    it.clock.advance(seconds)
    run = f"llama/{it.run.number}"
    beats = {
        name: Heartbeat(f"role:{name}", "boot-1", it.clock(), 60.0, trainings={run: NodeTraining(run, **values)})
        for name, values in by_node.items()
    }
    look_at_training(["demo"], beats, it.ports, it.policy)


def stands_still(it: JobCluster) -> None:
    """For five minutes both nodes say so, and B is a step behind; two sweeps look at it."""
    standing = {"idle_seconds": 300.0, "step_seconds": 1.0}
    for _ in range(2):
        shows(it, 300, {A: {"step": 40, **standing}, B: {"step": 39, **standing}})


@pytest.mark.parametrize("mode", [Mode.act, Mode.observe])
def test_a_run_that_hangs_by_its_own_steps_starts_again_where_the_policy_says_so(mode: Mode) -> None:
    told = SAVING.model_copy(
        update={
            "slow_jobs": SlowJobs(restarts=(JobFindingKind.HUNG,)),
            "default_pool": SAVING.default_pool.model_copy(update={"mode": mode}),
        }
    )
    it = JobCluster(policy=told)
    it.happenings = [stands_still, is_recovered, finishes]

    seen = it.submit()

    acts = mode is Mode.act
    assert (seen.end, it.run.number, len(incidents(it))) == ("Completed", 2 if acts else 1, 1)
    assert [name for verb, name in it.commands if verb == "freeze-evidence"] == ([B] if acts else [])
    assert {node.state for node in it.ports.nodes.in_pool("demo")} == {NodeState.HEALTHY}


ON_LOSS = ACT.model_copy(update={"slow_jobs": SlowJobs(restarts=(JobFindingKind.LOSS_NOT_FINITE,))})


def loses_its_loss(good_step: int | None) -> Callable[[JobCluster], None]:
    """Both nodes say that the loss is not a number, and which step was the last good one."""
    lost = {"step": 95, "idle_seconds": 1.0, "step_seconds": 1.0, "loss": math.nan, "good_step": good_step}
    return lambda it: shows(it, 60, {A: lost, B: lost})


def diverging(*happenings: Happening) -> JobCluster:
    it = JobCluster(policy=ON_LOSS, checkpoints={"directory": "/mnt/llama", "format": "megatron"})
    it.checkpoints = [(f"/mnt/llama/iter_{step}", step) for step in (20, 40, 60, 80)]
    it.happenings = [*happenings, finishes]
    return it


def resumed(it: JobCluster) -> list[int | None]:
    return [run.resumed_step for run in it.ports.jobs.runs("llama")]


def test_a_loss_that_is_no_number_goes_back_before_it_and_further_where_that_does_not_help() -> None:
    it = diverging(loses_its_loss(70), is_recovered, loses_its_loss(64), is_recovered)

    assert it.submit().end == "Completed"
    assert resumed(it) == [80, 60, 40]
    assert {node.state for node in it.ports.nodes.in_pool("demo")} == {NodeState.HEALTHY}


def test_what_a_later_run_has_written_is_trusted_again() -> None:
    it = diverging(loses_its_loss(70), is_recovered, lambda cluster: report(cluster, A, "llama/2"), is_recovered)
    it.submit()
    later = it.ports.jobs.get_run("llama", 2)
    assert later is not None

    asked = [sent.parameters for sent in searches_in(it.ports) if "DistrustedStep" in sent.parameters]

    started = later.started_at.timestamp()
    untils = [int(parameters["DistrustedUntil"]) for parameters in asked]
    assert {parameters["DistrustedStep"] for parameters in asked} == {"70"}
    assert (untils[0] > started, untils[-1]) == (True, math.ceil(started)), "none was started when it was asked first"


def test_without_an_older_checkpoint_a_human_has_it_and_nothing_is_started() -> None:
    it = diverging(loses_its_loss(10), is_recovered)

    it.submit()

    assert resumed(it) == [80]
    assert it.job.state is JobState.FAILED
    assert "no checkpoint before step 10" in it.job.summary


def test_an_agent_that_is_too_old_to_leave_it_out_is_not_believed() -> None:
    it = diverging(loses_its_loss(70), is_recovered)
    it.knows_no_distrust = set(NODES)

    it.submit()

    assert (resumed(it), it.job.state) == ([80], JobState.FAILED)


def test_a_job_without_checkpoints_is_left_to_its_owner() -> None:
    it = JobCluster(policy=ON_LOSS)
    it.happenings = [loses_its_loss(70), finishes]

    assert (it.submit().end, it.run.number, incidents(it)) == ("Completed", 1, [])


def test_where_nobody_knows_the_last_good_step_the_owner_is_told_and_nothing_is_restarted() -> None:
    it = diverging(loses_its_loss(None))
    it.checkpoints = []

    assert (it.submit().end, resumed(it), incidents(it)) == ("Completed", [None], [])


def test_a_run_without_any_good_step_goes_back_before_the_checkpoint_that_it_began_from() -> None:
    it = diverging(loses_its_loss(None), is_recovered)

    assert it.submit().end == "Completed"
    assert resumed(it) == [80, 60]


def works_slowly(cause: str | None) -> Callable[[JobCluster], None]:
    """B's own work of a step takes half as long again as that of A, and its checks measure this."""
    fast, slow = ({"step": 95, "compute_seconds": t, "slowest_compute_seconds": t} for t in (1.0, 1.5))
    return lambda it: shows(it, 60, {A: fast, B: {**slow, "slowed_by": cause}})


@pytest.mark.parametrize("mode", [Mode.act, Mode.observe])
def test_a_node_that_measures_why_it_slows_its_job_is_rebooted_and_the_job_goes_on(mode: Mode) -> None:
    policy = ACT.model_copy(
        update={
            "slow_jobs": SlowJobs(restarts=(JobFindingKind.SLOW_RANK,)),
            "default_pool": ACT.default_pool.model_copy(update={"mode": mode}),
        }
    )
    it = JobCluster(policy=policy)
    it.happenings = [*[works_slowly("nvml/CLOCKS_LOW")] * 3, is_recovered, finishes]

    walk = it.submit()

    acts = mode is Mode.act
    assert (walk.end, it.run.number, len(incidents(it))) == ("Completed", 2 if acts else 1, 1)
    assert [name for verb, name in it.commands if verb == "reboot-node"] == ([B] if acts else [])


def test_a_slow_node_of_a_job_that_is_over_is_history() -> None:
    it, _ = hung()
    it.submit()
    slowed = hang(it, A, "llama/2").model_copy(update={"code": TRAINING_SLOWED, "event_id": "slowed"})

    assert ingest(slowed, it.ports, it.policy) is Ingested.HISTORY


@pytest.mark.parametrize("cause", [None, "nvml/POWER_BRAKE"])
def test_a_node_that_measures_nothing_that_a_restart_mends_is_left_alone(cause: str | None) -> None:
    it = JobCluster(policy=ACT.model_copy(update={"slow_jobs": SlowJobs(restarts=(JobFindingKind.SLOW_RANK,))}))
    it.happenings = [*[works_slowly(cause)] * 5, finishes]

    assert (it.submit().end, it.run.number, incidents(it)) == ("Completed", 1, [])


def test_a_run_that_hangs_by_its_own_steps_is_only_told_by_default() -> None:
    it = JobCluster()
    it.happenings = [stands_still, finishes]

    seen = it.submit()

    assert (seen.end, it.run.number, incidents(it)) == ("Completed", 1, [])


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_that_cannot_save_them_holds_nothing_up(answers: bool) -> None:
    it, _ = hung(SAVING)
    it.happenings[1:2] = [lambda cluster: None if answers else cluster.hangs.add(A), is_recovered]

    assert it.submit().end == "Completed"


def test_a_limit_that_every_look_would_break_is_refused() -> None:
    with pytest.raises(ValueError, match="hang_seconds"):
        JobCluster(hang_seconds=9)
