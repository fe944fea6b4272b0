"""What a decision is told of the world outside its incident."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import AttemptLimit, Decision
from nodeheal.contract.vocabulary import Action, JobState, NodeState, Outcome, Provider, Step
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import DAY, Breaker, Correlation
from nodeheal.domain.recovery.decision_context import DecisionContext, accelerator_scope, job_scope, node_scope
from nodeheal.domain.recovery.incident import History, Incident, Turn, incident_id_of
from nodeheal.domain.recovery.timeline import decision_entry
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs import job_steps
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.recovery.read_situation import (
    TIMES_USED,
    _is_broken,
    _may_move,
    _ways_out,
    is_running,
    read_situation,
)
from nodeheal.services.saving import node_of
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, NOW, memory_ports, node, stored_job, stored_run, xid
from tests.support.incident_steps import LLAMA, A, B, C, take
from tests.support.incident_steps import Incident as Recovery
from tests.support.incident_steps import Incident as SteppedIncident
from tests.support.jobs import ecs_job
from tests.support.observed_operations import ended, saved
from tests.support.recovery_story import Story
from tests.support.steps import turn
from tests.support.three_nodes import started_run

NODE = node().node_id
OTHER = "mi-0bbbbbbbbbbbbbbbb"
POLICY = ACT.model_copy(
    update={
        "correlation": Correlation(window_seconds=300, repeat_window_seconds=DAY, other_job_window_seconds=2 * DAY),
        "breaker": Breaker(min_nodes=3, window_seconds=600),
    }
)


def story(job: str | None = "llama", *events: Any) -> History:
    root = xid(79)
    incident = Incident(incident_id_of(root), NODE, "demo", root, NOW, "policy-1", job_id=job)
    return History(incident, (root, *events), ())


def world(**changes: Any) -> Ports:
    ports = memory_ports()
    ports.nodes.save(node(**changes))
    return ports


def around(ports: Ports, history: History | None = None, policy: RecoveryPolicy = POLICY) -> DecisionContext:
    return read_situation(history or story(), ports, policy).history.context


def seen(ports: Ports, name: str, node_id: str, seconds_before: float, **changes: Any) -> None:
    at = NOW - timedelta(seconds=seconds_before)
    ports.nodes.record(xid(31, event_id=name, node_id=node_id, observed_at=at, **changes), "llama")


def names(found: DecisionContext) -> list[str]:
    return [observation.event_id for observation in found.observations]


def test_what_is_known_of_the_node_is_told() -> None:
    past = PastRecovery("inc-1", NOW - timedelta(days=1))
    known = {"booted_at": NOW - timedelta(hours=2), "agent_since": NOW - timedelta(hours=1), "recoveries": (past,)}

    found = around(world(provider=Provider.ec2, healthy_since=NOW - timedelta(minutes=5), **known))

    assert found.provider is Provider.ec2
    assert (found.booted_at, found.agent_since, found.recoveries) == tuple(known.values())
    assert found.healthy_since == NOW - timedelta(minutes=5)


def test_a_nodes_own_past_reaches_further_back_than_its_pools() -> None:
    ports = world()
    seen(ports, "own-week-old", NODE, 7 * DAY)
    seen(ports, "own-day-old", NODE, DAY)
    seen(ports, "others-day-old", OTHER, DAY)
    seen(ports, "others-now", OTHER, 600)
    seen(ports, "another-pools", OTHER, 1, pool="elsewhere")

    assert names(around(ports)) == ["own-day-old", "others-now"]


def test_windows_are_counted_from_the_fault_and_not_from_now() -> None:
    ports = world()
    seen(ports, "others", OTHER, 599)
    ports.clock.advance(3_600)  # type: ignore[attr-defined]

    assert names(around(ports)) == ["others"]


@pytest.mark.parametrize(("others", "counted"), [(1, 0), (2, 5)])
def test_a_pool_is_counted_only_where_so_many_fail_that_the_count_can_matter(others: int, counted: int) -> None:
    ports = world()
    for number in range(4):
        ports.nodes.save(node(f"mi-{number}"))
    seen(ports, "own", NODE, 1)
    for number in range(others):
        seen(ports, f"other-{number}", f"mi-{number}", 1)

    assert around(ports).pool_nodes == counted


def test_one_node_that_reports_often_is_no_crowd() -> None:
    ports = world()
    for number in range(5):
        seen(ports, f"own-{number}", NODE, number)

    assert around(ports).pool_nodes == 0


def _runs(ports: Ports, *statuses: str, state: JobState = JobState.RUNNING) -> None:
    tasks = tuple(GangTask(NODE, rank, "boot-1", f"p-{rank}", "t", status) for rank, status in enumerate(statuses))
    ports.jobs.save(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, state=state, current_run=1))
    ports.jobs.save_run(Run("llama", 1, NOW, "submitted", tasks))


@pytest.mark.parametrize(
    ("statuses", "state", "is_running"),
    [
        (("RUNNING", "RUNNING"), JobState.RUNNING, True),
        (("PENDING", "STOPPED"), JobState.RUNNING, True),
        (("STOPPED", "STOPPED"), JobState.RUNNING, False),
        (("STOPPED", "STOPPED"), JobState.STOPPED, False),
        (("STOPPED", "STOPPED"), JobState.COMPLETED, False),
    ],
)
def test_a_job_runs_while_a_rank_has_not_stopped(statuses: tuple[str, ...], state: JobState, is_running: bool) -> None:
    ports = world()
    _runs(ports, *statuses, state=state)

    assert around(ports).job_is_running is is_running


@pytest.mark.parametrize(
    ("decided", "state", "is_running"),
    [
        (None, JobState.STOPPED, True),
        (Step.REBOOT, JobState.STOPPED, True),
        (Step.WAIT, JobState.STOPPED, False),
        (Step.REBOOT, JobState.COMPLETED, False),
    ],
)
def test_a_job_that_another_incident_has_stopped_is_about_to_run_again(
    decided: Step | None, state: JobState, is_running: bool
) -> None:
    ports = world()
    _runs(ports, "STOPPED", "STOPPED", state=state)
    run = stored_run(ports, "llama", 1)
    ports.jobs.save_run(run.with_task(replace(run.tasks[1], node_id=OTHER)))
    ports.nodes.save(node(OTHER))
    ingest(xid(79, node_id=OTHER, instance_id=OTHER, event_id="other"), ports, ACT)
    theirs = ports.incidents.history(incident_id_of(xid(79, node_id=OTHER, event_id="other"))).incident
    if decided is not None:
        decision = Decision(step=decided, reason="so", node_id=OTHER)
        assert ports.incidents.advance(replace(theirs, turn=1), [decision_entry(0, decision, NOW)])

    assert around(ports).job_is_running is is_running


@pytest.mark.parametrize("job", [None, "unknown"])
def test_no_job_does_not_run(job: str | None) -> None:
    ports = world()
    _runs(ports, "RUNNING")

    assert around(ports, story(job)).job_is_running is False


def test_what_was_spent_is_told_for_the_node_the_accelerators_and_the_job() -> None:
    ports, other = world(), AttemptLimit(group=Action.REBOOT, limit=9, window_seconds=DAY)
    ports.attempts.reserve(node_scope(NODE), "a", POLICY.limits[Action.REBOOT])
    ports.attempts.reserve(accelerator_scope("serial-1"), "b", POLICY.accelerator_limits[Action.REPLACE])
    ports.attempts.reserve(job_scope("llama"), "c", POLICY.limits[Action.RESTART_WORKLOAD])
    ports.attempts.reserve(node_scope(OTHER), "d", other)

    spent = around(ports, story("llama", xid(48, component_serial="serial-1"))).spent

    assert {key: count for key, count in spent.items() if count} == {
        (node_scope(NODE), Action.REBOOT): 1,
        (accelerator_scope("serial-1"), Action.REPLACE): 1,
        (job_scope("llama"), Action.RESTART_WORKLOAD): 1,
    }
    assert (node_scope(NODE), Action.REPLACE) in spent


def test_stops_and_starts_count_where_the_pool_has_them() -> None:
    pool = POLICY.default_pool.model_copy(update={"stop_start": True})
    ports = world()
    ports.attempts.reserve(node_scope(NODE), "a", POLICY.limits[Action.STOP_START])

    spent = around(ports, policy=POLICY.model_copy(update={"default_pool": pool})).spent

    assert spent[node_scope(NODE), Action.STOP_START] == 1
    assert (node_scope(NODE), Action.STOP_START) not in around(ports).spent


def test_without_a_job_or_a_serial_only_the_node_is_counted() -> None:
    scopes = {scope for scope, _ in around(world(), story(None)).spent}

    assert scopes == {node_scope(NODE)}


def test_an_accelerator_without_a_limit_is_not_counted() -> None:
    policy = POLICY.model_copy(update={"accelerator_limits": {}})

    spent = around(world(), story(None, xid(48, component_serial="serial-1")), policy).spent

    assert {scope for scope, _ in spent} == {node_scope(NODE)}


FREE = ("mi-0000000000000free1", "mi-0000000000000free2")


def pool_of(*proven: bool, broken: int = 1, **spare: Any) -> Ports:
    """A gang of two that has stopped, so many of its nodes isolated, and these free nodes."""
    ports = world(state=NodeState.ISOLATED)
    ports.nodes.save(node(OTHER, state=NodeState.ISOLATED if broken > 1 else NodeState.HEALTHY, job_id="llama"))
    for name, is_proven in zip(FREE, proven, strict=False):
        ports.nodes.save(node(name, passed_at=NOW if is_proven else None, **spare))
    tasks = tuple(
        GangTask(name, rank, "boot-1", f"p-{rank}", "t", "STOPPED") for rank, name in enumerate((NODE, OTHER))
    )
    ports.jobs.save(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, current_run=1))
    ports.jobs.save_run(Run("llama", 1, NOW, "submitted", tasks))
    return ports


def after(step: Step, outcome: Outcome = Outcome.DONE, *before: Turn, is_move: bool = False) -> History:
    decision = Decision(step=step, reason="so", node_id=NODE, is_move=is_move)
    result = StepResult(step=step, node_id=NODE, outcome=outcome, reason="so", finished_at=NOW)
    return replace(story(), turns=(*before, Turn(decision, result)))


ISOLATED = after(Step.ISOLATE)


@pytest.mark.parametrize(
    ("proven", "broken", "free_nodes", "replacement_node"),
    [
        ((True, True), 1, 2, ""),
        ((False, True), 1, 1, ""),
        ((False, False), 1, 0, FREE[0]),
        ((True, True), 2, 2, ""),
        ((False, True), 2, 0, FREE[0]),  # one short: that one is to be proven
        ((False, False), 2, 0, ""),
        ((), 1, 0, ""),
    ],
)
def test_a_job_could_go_on_where_every_broken_node_has_somebody_for_its_place(
    proven: tuple[bool, ...], broken: int, free_nodes: int, replacement_node: str
) -> None:
    found = around(pool_of(*proven, broken=broken), ISOLATED)

    assert (found.free_nodes, found.replacement_node) == (free_nodes, replacement_node)


@pytest.mark.parametrize(
    ("history", "is_asked"),
    [
        (ISOLATED, True),
        (after(Step.REBOOT), False),
        (after(Step.REBOOT, Outcome.TIMED_OUT), True),
        (after(Step.DIAGNOSE, Outcome.FAILED), True),
        (after(Step.DIAGNOSE), False),
        (after(Step.DIAGNOSE, is_move=True), True),
        (after(Step.REPLACE, Outcome.REFUSED), True),
        (after(Step.WAIT, Outcome.TIMED_OUT), False),
        (after(Step.REBOOT, Outcome.TIMED_OUT, *after(Step.RESTART_WORKLOAD, is_move=True).turns), False),
        (after(Step.FREEZE_EVIDENCE), True),
        (after(Step.FREEZE_EVIDENCE, Outcome.DONE, *after(Step.RESTART_WORKLOAD, is_move=True).turns), False),
        (story(), False),
    ],
)
def test_it_is_asked_before_each_step_and_never_after_a_move(history: History, is_asked: bool) -> None:
    assert around(pool_of(True), history).free_nodes == is_asked


def test_a_broken_node_that_is_none_of_the_gangs_needs_nobody_in_its_place() -> None:
    ports = pool_of(True)
    ports.nodes.save(node("mi-0000000elsewhere1", state=NodeState.ISOLATED))

    assert around(ports, ISOLATED).free_nodes == 1


@pytest.mark.parametrize(("state", "status"), [(JobState.CANCELLED, "STOPPED"), (JobState.RUNNING, "RUNNING")])
def test_a_job_that_is_over_and_one_of_which_a_rank_lives_go_nowhere(state: JobState, status: str) -> None:
    ports = pool_of(True)
    job, run = stored_job(ports, "llama"), stored_run(ports, "llama", 1)
    ports.jobs.save(replace(job, state=state))
    ports.jobs.save_run(run.with_task(replace(run.tasks[1], status=status)))

    assert around(ports, ISOLATED).free_nodes == 0


def test_nobody_who_opted_out_is_tested_for_another() -> None:
    policy = POLICY.model_copy(update={"opted_out": {FREE[0]: "hers"}})

    assert around(pool_of(False, False), ISOLATED, policy).replacement_node == FREE[1]


def test_of_what_recoveries_took_the_newest_count_each_by_its_step() -> None:
    ports = pool_of()
    past = tuple(
        PastRecovery(f"inc-{n}", NOW - timedelta(days=n), 100.0 + n, Action.REBOOT, 10.0 + n)
        for n in range(TIMES_USED + 2)
    )
    others = (PastRecovery("swap", NOW, 900.0, Action.REPLACE), PastRecovery("in vain", NOW, None, Action.REBOOT))
    save_node(ports, node(OTHER), recoveries=(*past[::-1], *others, PastRecovery("of old", NOW, 1.0)))

    found = around(ports, ISOLATED)

    assert found.recovery_seconds[Action.REBOOT] == tuple(100.0 + n for n in range(TIMES_USED))
    assert found.recovery_seconds[Action.REPLACE] == (900.0,)
    assert found.proof_seconds == tuple(10.0 + n for n in range(TIMES_USED))


def _crashed(*events: HealthEvent) -> SteppedIncident:
    """A row remap that waits for its job; then these events; then every rank of the job dies."""
    it = SteppedIncident(63)
    it.request()
    for event in events:
        take(it, event)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=1)
    return it


def test_a_job_that_has_crashed_runs_no_more_although_the_incident_itself_is_open() -> None:
    it = _crashed()

    assert is_running(*current_run("llama", it.ports), it.ports.incidents.history(it.id).incident, it.ports) is False


def test_a_job_whose_other_node_is_being_recovered_is_about_to_run_again() -> None:
    it = _crashed(xid(79, node_id=B, instance_id=B, event_id="on-b"))

    assert is_running(*current_run("llama", it.ports), it.ports.incidents.history(it.id).incident, it.ports) is True


def test_a_node_of_the_gang_that_nobody_knows_recovers_nothing() -> None:
    it = _crashed()
    run = stored_run(it.ports, "llama", 1)
    it.ports.jobs.save_run(run.with_task(replace(run.tasks[1], node_id="mi-gone")))

    assert is_running(*current_run("llama", it.ports), it.ports.incidents.history(it.id).incident, it.ports) is False


def test_a_decision_sees_the_job_and_its_run() -> None:
    it = Recovery()
    job_steps.save_job(it.ports, "llama", submission=1)
    history = it.ports.incidents.history(it.id)

    seen = read_situation(history, it.ports, ACT).history.context

    assert seen.run_started_at == stored_run(it.ports, "llama", 1).started_at
    assert seen.job_limits != ()


@pytest.mark.parametrize(
    ("step", "may_move"),
    [
        (Step.DIAGNOSE, True),  # another node was proven for it, and its own has failed since
        (Step.RESTART_WORKLOAD, False),  # it goes on elsewhere already
    ],
)
def test_a_job_moves_once(step: Step, may_move: bool) -> None:
    turns = (
        turn(Step.ISOLATE, Outcome.DONE),
        turn(step, Outcome.DONE, is_move=True),
        turn(Step.REBOOT, Outcome.TIMED_OUT),
    )

    assert _may_move(replace(Story(xid(79)).history, turns=turns)) is may_move


@pytest.mark.parametrize(("places", "free"), [(1, 1), (2, 0)])
def test_free_nodes_count_where_there_are_enough_of_them(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, places: int, free: int
) -> None:
    run = saved(three_nodes, ended(started_run(three_nodes)))
    for name in (A, B)[:places]:
        assert three_nodes.nodes.save(replace(node_of(name, three_nodes), state=NodeState.ISOLATED))
    monkeypatch.setattr(
        "nodeheal.services.recovery.read_situation.replacement_nodes", lambda *_: [node_of(C, three_nodes)]
    )
    history = replace(Story(xid(79)).history, turns=(turn(Step.ISOLATE, Outcome.DONE),))

    found = _ways_out(history, stored_job(three_nodes, "llama"), run, NO_PAUSES, three_nodes, ACT)

    assert found["free_nodes"] == free


def rank(where: str, **changes: Any) -> GangTask:
    return replace(GangTask(where, 0, "boot-1", "placement", asked_at=NOW, task_id="t", status="RUNNING"), **changes)


REBOOTED = node(A, boot_id="boot-2", booted_at=NOW + timedelta(minutes=1))


@pytest.mark.parametrize(
    ("task", "state", "is_broken"),
    [
        (rank(A), JobState.RUNNING, True),  # it cannot have outlived its boot
        (rank(A), JobState.COMPLETED, False),
        (rank(B), JobState.RUNNING, False),  # of another node nothing is known
        (rank(B, status="STOPPED", exit_code=1), JobState.RUNNING, True),
        (rank(B, status="STOPPED", exit_code=0), JobState.RUNNING, False),
    ],
)
def test_a_job_is_broken_where_it_is_short_of_a_rank(task: GangTask, state: JobState, is_broken: bool) -> None:
    run = Run("llama", 1, NOW, "submitted", (task,))

    assert _is_broken(replace(LLAMA, state=state), run, REBOOTED) is is_broken
    assert not _is_broken(LLAMA, None, REBOOTED)
