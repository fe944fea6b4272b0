"""A sweep looks at how runs train: what is wrong is written down, and the owner is told once a run."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import Family, JobFindingKind, JobState, Phase, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.fleet.pool import RunningJobs
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.jobs.job_findings import JobFinding, NotedFinding
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import SlowJobs
from nodeheal.ports import Ports
from nodeheal.services import sweep as sweeping
from nodeheal.services.jobs.look_at_training import TrainingLook, look_at_alert, look_at_training
from nodeheal.services.notify.compose_training import compose_training
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, xid
from tests.support.jobs import ecs_job

ADA = Owner("ada@example.com", "Ada Lovelace")
NODES = ("mi-0", "mi-1", "mi-2")
JOB = replace(
    ecs_job("llama", "demo", "training", "trainer:1", "trainer", 3, steps=10_000),
    current_run=2,
    state=JobState.RUNNING,
    owner=ADA,
)
TASKS = tuple(GangTask(name, rank, "boot-1", f"arn-{rank}", status="RUNNING") for rank, name in enumerate(NODES))
RUN = Run("llama", 2, NOW, "first", TASKS, running_since=NOW)
STANDS: dict[str, Any] = {"idle_seconds": 300.0, "usual_step_seconds": 2.0}
SLOW: dict[str, Any] = {"step_seconds": 3.0, "usual_step_seconds": 2.0, "step_spread": 0.01, "idle_seconds": 1.0}


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(NOW)


@pytest.fixture
def world(clock: FrozenClock) -> Ports:
    ports = memory_ports(clock=clock)
    assert ports.jobs.save(JOB)
    assert ports.jobs.save_run(RUN)
    return ports


def look(world: Ports, values: dict[str, Any], *, nodes: tuple[str, ...] = NODES, run: str = "llama/2") -> list[str]:
    """Whose owner one sweep tells, when the nodes' heartbeats say so of the run."""
    return look_at_training(["demo"], heartbeats(world, values, nodes, run), world, ACT).announced


def heartbeats(
    world: Ports, values: dict[str, Any], nodes: tuple[str, ...] = NODES, run: str = "llama/2"
) -> dict[str, Heartbeat]:
    training = NodeTraining(run, 500, **values)
    return {name: Heartbeat(f"role:{name}", "boot-1", world.clock(), 60.0, trainings={run: training}) for name in nodes}


def counted(world: Ports, beats: dict[str, Heartbeat]) -> dict[str, RunningJobs]:
    """The jobs of each pool, as one sweep counts them."""
    return look_at_training(["demo", "idle"], beats, world, ACT).running


def with_slow_jobs(**knobs: Any) -> RecoveryPolicy:
    return ACT.model_copy(update={"slow_jobs": SlowJobs(**knobs)})


def subjects(world: Ports) -> list[str]:
    return [mail.subject for _, mail in world.notifier.announced]  # type: ignore[attr-defined]


def test_a_run_that_hangs_is_told_to_its_owner_once(world: Ports, clock: FrozenClock) -> None:
    first = look(world, STANDS)
    clock.advance(60)

    assert (first, look(world, STANDS)) == (["llama"], [])
    assert subjects(world) == ["[nodeheal] llama seems to hang"]
    [kept] = world.job_findings.of("llama", 2)
    assert (kept.finding.kind, kept.since, kept.announced_at, kept.over_at) == (JobFindingKind.HUNG, NOW, NOW, None)


def test_what_is_over_is_written_down_and_not_told_when_it_comes_again(world: Ports, clock: FrozenClock) -> None:
    look(world, STANDS)
    clock.advance(60)
    look(world, {**STANDS, "idle_seconds": 1.0})
    [over] = world.job_findings.of("llama", 2)
    clock.advance(60)
    look(world, STANDS)

    assert over.over_at == NOW + timedelta(seconds=60)
    assert len(subjects(world)) == 1


def test_a_noisy_finding_is_told_when_it_holds(world: Ports, clock: FrozenClock) -> None:
    look(world, SLOW)
    clock.advance(60)
    look(world, SLOW)
    early = subjects(world)
    clock.advance(60)
    look(world, SLOW)

    assert (early, subjects(world)) == ([], ["[nodeheal] llama trains more slowly than before"])


def test_a_job_without_an_owner_is_only_written_down(world: Ports) -> None:
    job = world.jobs.get("llama")
    assert job is not None
    assert world.jobs.save(replace(job, owner=None))

    assert look(world, STANDS) == ["llama"]
    assert subjects(world) == []
    assert [each.announced_at for each in world.job_findings.of("llama", 2)] == [NOW]


def test_a_node_that_is_not_heard_of_leaves_the_run_unjudged(world: Ports, clock: FrozenClock) -> None:
    assert look(world, STANDS, nodes=NODES[:2]) == []
    late = Heartbeat("role:mi-0", "boot-1", NOW - timedelta(minutes=10), 60.0)
    beats = {name: replace(late, who=f"role:{name}") for name in NODES}
    assert look_at_training(["demo"], beats, world, ACT).announced == []
    assert world.job_findings.of("llama", 2) == []


@pytest.mark.parametrize(("seconds_before_the_last_step", "told"), [(1, []), (0, ["llama"])])
def test_a_node_that_has_said_nothing_since_the_last_step_of_the_others_may_still_say_who_hangs(
    world: Ports, clock: FrozenClock, seconds_before_the_last_step: float, told: list[str]
) -> None:
    clock.advance(300)
    beats = heartbeats(world, {"idle_seconds": 60.0, "usual_step_seconds": 2.0})
    last_step = clock() - timedelta(seconds=60)
    spoke = last_step - timedelta(seconds=seconds_before_the_last_step)
    beats["mi-2"] = replace(beats["mi-2"], at=spoke, trainings={})

    assert look_at_training(["demo"], beats, world, ACT).announced == told


def test_a_node_whose_clock_is_ahead_delays_no_hang(world: Ports, clock: FrozenClock) -> None:
    clock.advance(300)
    beats = heartbeats(world, {"idle_seconds": 60.0, "usual_step_seconds": 2.0})
    beats["mi-0"] = replace(beats["mi-0"], at=clock() + timedelta(minutes=10))
    beats["mi-2"] = replace(beats["mi-2"], trainings={})

    assert look_at_training(["demo"], beats, world, ACT).announced == ["llama"]


def test_steps_of_another_run_say_nothing(world: Ports, clock: FrozenClock) -> None:
    clock.advance(60)

    assert look(world, STANDS, run="llama/1") == []


def test_a_run_of_which_nothing_is_read_has_taken_no_step_in_an_hour(world: Ports, clock: FrozenClock) -> None:
    clock.advance(3_601)

    assert look(world, STANDS, run="llama/1") == ["llama"]
    assert subjects(world) == ["[nodeheal] llama has taken no step yet"]


@pytest.mark.parametrize("change", [{"state": JobState.COMPLETED}, {"current_run": 0}])
def test_a_job_that_does_not_run_is_not_looked_at(world: Ports, change: dict[str, Any]) -> None:
    job = world.jobs.get("llama")
    assert job is not None
    assert world.jobs.save(replace(job, **change))

    assert look(world, STANDS) == []


def test_a_run_whose_ranks_do_not_all_run_is_not_looked_at(world: Ports) -> None:
    run = world.jobs.get_run("llama", 2)
    assert run is not None
    assert world.jobs.save_run(run.with_task(replace(TASKS[0], status="STOPPED")))

    assert look(world, STANDS) == []


def test_where_nobody_looks_or_no_heartbeat_is_read_nothing_is_judged(world: Ports, clock: FrozenClock) -> None:
    clock.advance(7_200)

    assert look_at_training(["demo"], {}, world, ACT) == TrainingLook()
    beats = {name: Heartbeat(f"role:{name}", "boot-1", world.clock(), 60.0) for name in NODES}
    assert look_at_training(["demo"], beats, world, with_slow_jobs(enabled=False)) == TrainingLook()
    assert look_at_training(["demo"], beats, world, ACT).announced == ["llama"]


def test_jobs_are_counted_by_pool_with_those_that_show_steps_and_those_with_findings(
    world: Ports, clock: FrozenClock
) -> None:
    well = counted(world, heartbeats(world, {"idle_seconds": 1.0}))
    hangs = counted(world, heartbeats(world, STANDS))
    clock.advance(3_601)
    without_a_step = counted(world, heartbeats(world, STANDS, run="llama/1"))

    assert well == {"demo": RunningJobs(shown=1), "idle": RunningJobs()}
    assert hangs["demo"] == RunningJobs(shown=1, with_findings=1)
    assert without_a_step["demo"] == RunningJobs(with_findings=1)


def test_a_job_counts_with_what_its_ranks_take_together(world: Ports) -> None:
    job = world.jobs.get("llama")
    assert job is not None
    assert world.jobs.save(replace(job, accelerators=8))

    assert counted(world, heartbeats(world, STANDS))["demo"] == RunningJobs(1, 1, accelerators=24)


def test_a_run_that_is_not_judged_keeps_its_finding_in_the_count(world: Ports) -> None:
    look(world, STANDS)

    assert counted(world, heartbeats(world, {"idle_seconds": 1.0}, NODES[:2]))["demo"] == RunningJobs(1, 1)


@pytest.mark.parametrize("broken", range(3))
def test_a_look_that_breaks_at_any_write_is_made_up_for_by_the_next(
    world: Ports, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    writes = list[str]()

    def breaking(write: Any) -> Any:
        def writes_once(*given: Any) -> None:
            writes.append(write.__name__)
            if len(writes) == broken + 1:
                raise NotAccepted("throttled")
            write(*given)

        return writes_once

    monkeypatch.setattr(world.job_findings, "note", breaking(world.job_findings.note))
    monkeypatch.setattr(world.notifier, "announce", breaking(world.notifier.announce))
    with pytest.raises(NotAccepted):
        look(world, STANDS)
    clock.advance(60)

    assert look(world, STANDS) == ["llama"]
    assert {mail.key for _, mail in world.notifier.announced} == {"owner/llama/2/TRAINS_BADLY/HUNG"}  # type: ignore[attr-defined]
    assert [each.announced_at for each in world.job_findings.of("llama", 2)] == [clock()]


# As soon as a node says that the run stands still


def stall(node_id: str, component: str | None = "llama/2") -> HealthEvent:
    known = {"node_id": node_id, "instance_id": node_id, "component": component}
    return xid(0, family=Family.host, code="training_alert", subcode=None, verdict=Verdict.DEGRADED, **known)


@pytest.fixture
def standing(world: Ports) -> Ports:
    """All nodes of the run have said that it stands still."""
    training = NodeTraining("llama/2", 500, **STANDS)
    for name in NODES:
        beat = Heartbeat(f"role:{name}", "boot-1", world.clock(), 60.0, trainings={"llama/2": training})
        world.heartbeats.beats[beat.who] = beat  # type: ignore[attr-defined]
    return world


def test_the_report_of_the_runs_first_node_has_the_run_looked_at_at_once(standing: Ports) -> None:
    for node_id in reversed(NODES):
        assert subjects(standing) == []
        look_at_alert(stall(node_id), standing, ACT)

    assert subjects(standing) == ["[nodeheal] llama seems to hang"]


@pytest.mark.parametrize("component", [None, "", "/", "llama-2/2", "llama"])
def test_a_report_of_no_run_of_that_node_is_nothing(standing: Ports, component: str | None) -> None:
    look_at_alert(stall("mi-9", component or None), standing, ACT)
    look_at_alert(stall("mi-1" if component == "llama" else "mi-0", component or None), standing, ACT)

    assert subjects(standing) == []


@pytest.mark.parametrize("where", ["slow_jobs", "silence"])
def test_where_nobody_looks_a_report_is_nothing(standing: Ports, where: str) -> None:
    off = getattr(ACT, where).model_copy(update={"enabled": False})

    look_at_alert(stall("mi-0"), standing, ACT.model_copy(update={where: off}))

    assert subjects(standing) == []


# In the sweep


@pytest.mark.parametrize("error", [NotAccepted("throttled"), ValueError("no job")])
def test_a_look_that_breaks_off_leaves_the_rest_of_the_sweep_as_it_is(
    world: Ports, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def breaks(*_: object) -> TrainingLook:
        raise error

    def takes_orders(*given: object) -> list[str]:
        orders.append(given)
        return []

    orders = list[object]()
    monkeypatch.setattr(sweeping, "look_at_training", breaks)
    monkeypatch.setattr(sweeping, "take_orders", takes_orders)

    if isinstance(error, NotAccepted):
        assert sweep(world, ACT).unfinished == "throttled"
    else:
        with pytest.raises(ValueError, match="no job"):
            sweep(world, ACT)
    assert len(orders) == 1


def test_a_sweep_looks_at_training_by_the_heartbeats_that_it_has_read(world: Ports) -> None:
    training = NodeTraining("llama/2", 500, **STANDS)
    for name in NODES:
        beat = Heartbeat(f"role:{name}", "boot-1", NOW, 60.0, trainings={"llama/2": training})
        world.heartbeats.beats[beat.who] = beat  # type: ignore[attr-defined]
    world.nodes.save(node("mi-0"))  # its pool is one of the fleet

    done = sweep(world, ACT)

    assert done.slow_jobs == ["llama"]
    assert done.running_jobs == {"demo": RunningJobs(1, 1)} == {"demo": world.pools.get("demo").running_jobs}


# The email


def test_the_email_says_what_is_wrong_and_that_nothing_was_done() -> None:
    kept = NotedFinding(JobFinding("llama", 2, JobFindingKind.SLOWER, 3.0, 2.0, 500), NOW)

    mail = compose_training(JOB, RUN, kept, ADA, restarts=False)

    assert (mail.phase, mail.owner, mail.key) == (
        Phase.TRAINS_BADLY,
        "ada@example.com",
        "owner/llama/2/TRAINS_BADLY/SLOWER",
    )
    assert mail.body.splitlines() == [
        "Hello Ada Lovelace,",
        "",
        "your job llama runs, but a step takes 3 s; in this run it usually took 2 s.",
        "",
        "Needed: nothing, if it does more work in a step now. Otherwise see its data, and its slowest rank.",
        "  nodeheal jobs show llama",
        "  nodeheal jobs logs llama",
        "",
        "Since: 2026-03-01 03:00:00 UTC",
        "Step: 500",
        "Done: nothing: nodeheal has looked, and touches neither the job nor its nodes for this.",
        "Job: llama, run 2, in pool demo",
    ]


def test_the_email_of_a_run_without_a_step_names_none() -> None:
    kept = NotedFinding(JobFinding("llama", 2, JobFindingKind.NO_FIRST_STEP, 3_700.0), NOW)

    mail = compose_training(JOB, RUN, kept, Owner("ada@example.com"), restarts=False)

    assert mail.body.startswith("Hello,\n")
    assert "Step:" not in mail.body


# A slow rank


def looks_at_slow_rank(world: Ports, cause: str | None, *, restarts: bool = True) -> list[str]:
    """The node ids of the incidents after one sweep in which mi-1 works longer than the others."""
    world.clock.advance(60)  # type: ignore[attr-defined]
    beats = heartbeats(world, {"idle_seconds": 1.0, "compute_seconds": 1.0, "slowest_compute_seconds": 1.0})
    slow = NodeTraining("llama/2", 500, 1.0, compute_seconds=1.0, slowest_compute_seconds=1.5, slowed_by=cause)
    beats["mi-1"] = replace(beats["mi-1"], trainings={"llama/2": slow})
    kinds = (JobFindingKind.SLOW_RANK,) if restarts else ()
    look_at_training(["demo"], beats, world, with_slow_jobs(restarts=kinds))
    incidents = [world.incidents.incident(incident) for incident in world.workflows.started]  # type: ignore[attr-defined]
    return [incident.node_id for incident in incidents]


@pytest.fixture
def manned(world: Ports) -> Ports:
    for name in NODES:
        world.nodes.save(node(node_id=name, pool="demo"))
    return world


def test_a_slow_rank_is_told_when_it_holds_and_nothing_is_done_while_nothing_is_measured(manned: Ports) -> None:
    incidents = [looks_at_slow_rank(manned, None) for _ in range(5)]

    assert incidents == [[]] * 5
    assert subjects(manned) == ["[nodeheal] llama may have a slow rank"]


def test_a_slow_rank_whose_node_measures_why_is_an_incident_of_that_node_when_it_holds(manned: Ports) -> None:
    incidents = [looks_at_slow_rank(manned, "nvml/CLOCKS_LOW") for _ in range(4)]

    assert incidents == [[], [], ["mi-1"], ["mi-1"]]
    [(_, mail)] = manned.notifier.announced  # type: ignore[attr-defined]
    assert "an incident is open for mi-1, which takes it out" in " ".join(mail.body.split())


def test_what_is_measured_after_the_owner_was_told_is_told_again_and_done(manned: Ports) -> None:
    for _ in range(3):
        looks_at_slow_rank(manned, None)

    assert [looks_at_slow_rank(manned, "nvml/CLOCKS_LOW") for _ in range(2)] == [["mi-1"], ["mi-1"]]
    assert len({mail.key for _, mail in manned.notifier.announced}) == len(subjects(manned)) == 2  # type: ignore[attr-defined]


def test_what_is_measured_at_the_second_time_that_it_is_slow_is_done_too(manned: Ports) -> None:
    for _ in range(3):
        looks_at_slow_rank(manned, None)
    look(manned, {"idle_seconds": 1.0})

    assert [looks_at_slow_rank(manned, "nvml/CLOCKS_LOW") for _ in range(3)] == [[], [], ["mi-1"]]


def test_a_proven_slow_rank_is_only_told_by_default(manned: Ports) -> None:
    assert [looks_at_slow_rank(manned, "nvml/CLOCKS_LOW", restarts=False) for _ in range(3)] == [[]] * 3
    assert subjects(manned) == ["[nodeheal] llama may have a slow rank"]
