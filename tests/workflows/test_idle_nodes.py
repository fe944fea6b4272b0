"""A free node that was not diagnosed for long is, while no job needs it and its pool can spare it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.names import IDLE_CHECK, NODES_LINE, pool_line
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Ending, Family, NodeState, Step, VerbName, Verdict
from nodeheal.domain.errors import NotAccepted, NotEnrolled, NotFound
from nodeheal.domain.fleet.liveness import liveness_of
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.operation import Operation, job_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode
from nodeheal.operations.record import start_waiting
from nodeheal.ports.scheduler import Drained
from nodeheal.services.intake.idle_nodes import TURN_SECONDS, diagnose_idle_node
from nodeheal.services.operators.operator_guardrails import pause_pool
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, node, scheduler_in, with_pool, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster
from tests.support.walker import Walk

DAILY = with_pool(idle_check_hours=24)
TWO = Budget(max_nodes=2, max_percent=100)


class Fleet(FakeCluster):
    """A job on two nodes, and a spare that nobody has proven for a day."""

    def __init__(self, policy: RecoveryPolicy = DAILY) -> None:
        super().__init__(policy)
        self.clock.advance(86_400)

    def is_swept(self) -> list[str]:
        nodes = [liveness_of(node) for node in self.ports.nodes.in_pool("demo")]
        return diagnose_idle_node("demo", nodes, self.ports, self.policy)

    def is_walked(self) -> Walk:
        """The workflow of the spare's incident runs to its end."""
        self.incident_id = str(self.node(SPARE).open_incident)
        return self._walk("recover_node", {"incident_id": self.incident_id}, self._answers())

    @property
    def steps(self) -> list[Step]:
        return [turn.decision.step for turn in self.ports.incidents.history(self.incident_id).turns]


def test_a_free_node_is_diagnosed_and_serves_again_without_an_email() -> None:
    fleet = Fleet()
    assert fleet.is_swept() == [SPARE]

    assert fleet.is_walked().end == "Recovered"
    assert fleet.steps == [Step.ISOLATE, Step.DIAGNOSE, Step.RETURN, Step.CLOSE]
    spare = fleet.node(SPARE)
    assert (spare.state, spare.passed_at, spare.recoveries) == (NodeState.HEALTHY, fleet.clock(), ())
    assert (fleet.told, fleet.ports.pools.holders("demo")) == ([], [])
    assert fleet.is_swept() == []


def test_a_day_later_it_is_its_turn_again() -> None:
    fleet = Fleet()
    fleet.is_swept()
    fleet.is_walked()
    first = fleet.incident_id
    fleet.clock.advance(86_400)

    assert fleet.is_swept() == [SPARE]
    assert fleet.is_walked().end == "Recovered"
    assert fleet.incident_id != first


def test_one_that_fails_waits_for_a_human_and_keeps_its_slot() -> None:
    fleet = Fleet()
    fleet.diagnoses[SPARE] = Verdict.FAILED
    fleet.is_swept()

    assert fleet.is_walked().end == "Escalated"
    assert fleet.node(SPARE).state is NodeState.QUARANTINED
    assert fleet.ports.pools.holders("demo") == [SPARE]
    [told] = [told for _, told in fleet.ports.notifier.announced]  # type: ignore[attr-defined]
    assert "Idle node: diagnostics failed: memory; it stays isolated" in told.body


def test_a_node_on_which_a_job_begins_meanwhile_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    read = fleet.ports.pauses.read

    def begins_before() -> Pauses:
        fleet.ports.nodes.save(replace(fleet.node(SPARE), job_id="llama"))
        return read()

    monkeypatch.setattr(fleet.ports.pauses, "read", begins_before)
    assert fleet.is_swept() == [SPARE]

    fleet.is_walked()

    incident = fleet.ports.incidents.incident(fleet.incident_id)
    assert (fleet.steps, incident.ending) == ([Step.CLOSE], Ending.OBSERVED_ONLY)
    assert incident.summary == "Idle node: it was not diagnosed: llama has begun there"
    assert fleet.node(SPARE).state is NodeState.HEALTHY


def test_a_task_of_others_that_begins_meanwhile_keeps_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    scheduler, drain_all = scheduler_in(fleet.ports), scheduler_in(fleet.ports).drain_all

    def begins_before(nodes: Sequence[Node], placements: Sequence[str]) -> dict[str, Drained]:
        someone_works_there(fleet)
        drained: dict[str, Drained] = drain_all(nodes, placements)
        return drained

    monkeypatch.setattr(scheduler, "drain_all", begins_before)
    fleet.is_swept()

    fleet.is_walked()

    incident, node = fleet.ports.incidents.incident(fleet.incident_id), fleet.node(SPARE)
    assert (fleet.steps, incident.ending) == ([Step.ISOLATE, Step.CLOSE], Ending.OBSERVED_ONLY)
    assert incident.summary == "Idle node: it was not diagnosed: work of others has begun there"
    assert (node.state, scheduler.placement_of(node).is_schedulable) == (NodeState.HEALTHY, True)
    assert "task/1" in scheduler.unmanaged
    assert (fleet.told, fleet.ports.pools.holders("demo")) == ([], [])


def test_a_fault_that_is_found_by_it_is_one_as_any_other() -> None:
    fleet = Fleet()
    fleet.is_swept()
    isolate = fleet._gang_stops

    def shows_a_fault(request: StepRequest) -> None:
        isolate(request)
        fleet._ingest(xid(79, node_id=SPARE, instance_id=SPARE, observed_at=fleet.clock()))

    fleet._gang_stops = shows_a_fault  # type: ignore[method-assign]
    fleet._decides_at_once = lambda request: None  # type: ignore[method-assign]

    assert fleet.is_walked().end == "Recovered"
    assert ("reboot-node", SPARE) in fleet.commands
    assert [recovery.rung for recovery in fleet.node(SPARE).recoveries] == [Action.REBOOT]
    [told] = [told for _, told in fleet.ports.notifier.announced]  # type: ignore[attr-defined]
    assert told.subject == f"[nodeheal] done: {SPARE}: XID 79 (GPU has fallen off the bus)"


def test_a_check_that_is_refused_is_tried_again_after_hours() -> None:
    fleet, begun = Fleet(), 0
    for _ in range(12):
        begun += len(fleet.is_swept())
        fleet.ports.nodes.save(replace(fleet.node(SPARE), open_incident=None))
        fleet.clock.advance(3_600)

    started: list[str] = fleet.ports.workflows.started  # type: ignore[attr-defined]
    assert (begun, len(started)) == (12, 3), "from 3 o'clock on: until 6, until 12, and until 18"


@pytest.mark.parametrize("error", [NotAccepted("throttled"), NotEnrolled("denied"), NotFound("no such node")])
def test_a_scheduler_that_does_not_answer_stops_no_sweep(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    fleet = Fleet()

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(scheduler_in(fleet.ports), "unmanaged_tasks", fails)

    assert fleet.is_swept() == []


def test_each_free_node_has_its_turn_and_a_call_looks_at_one() -> None:
    fleet, begun = Fleet(with_pool(idle_check_hours=24, budget=Budget(max_nodes=3, max_percent=100))), list[str]()
    names = [f"mi-{number:017}" for number in range(3)]
    for name in names:
        fleet.ports.nodes.save(node(name, passed_at=NOW))
    fleet.ports.nodes.save(replace(fleet.node(SPARE), passed_at=fleet.clock()))

    for _ in range(8):
        begun += fleet.is_swept()
        fleet.clock.advance(TURN_SECONDS)

    assert sorted(begun) == names


def a_job_waits(fleet: Fleet) -> None:
    waits = Operation(
        job_owner("gpt"), "await-gpt", VerbName.AWAIT_NODES, "", "", NOW, "", line=(pool_line(NODES_LINE, "demo"), "1")
    )
    start_waiting(waits, fleet.ports)


def one_slot_is_left(fleet: Fleet) -> None:
    assert fleet.ports.pools.claim("demo", BROKEN, 9)


def someone_works_there(fleet: Fleet) -> None:
    scheduler_in(fleet.ports).unmanaged["task/1"] = (SPARE, UnmanagedTask("task/1", "family:1", "service:none"))


def someone_drains_it(fleet: Fleet) -> None:
    scheduler = scheduler_in(fleet.ports)
    scheduler.drain_all([fleet.node(SPARE)], [scheduler.placement_of(fleet.node(SPARE)).name])


def changes(**values: object) -> Callable[[Fleet], object]:
    return lambda fleet: fleet.ports.nodes.save(replace(fleet.node(SPARE), **values))  # type: ignore[arg-type]


def nothing(_: Fleet) -> None:
    """The policy alone is the reason."""


LEFT_ALONE: dict[str, tuple[RecoveryPolicy, Callable[[Fleet], object]]] = {
    "the policy does not want it": (ACT, nothing),
    "observe mode": (with_pool(DAILY, mode=Mode.observe), nothing),
    "a human approves isolations": (with_pool(DAILY, modes={Action.ISOLATE: Mode.approve}), nothing),
    "opted out": (DAILY.model_copy(update={"opted_out": {SPARE: "ours"}}), nothing),
    "paused": (DAILY, lambda fleet: pause_pool("demo", 3_600, "a human is at work", fleet.ports)),
    "it was proven within a day": (DAILY, changes(passed_at=NOW + timedelta(seconds=1))),
    "a human gave it back within a day": (DAILY, changes(healthy_since=NOW + timedelta(seconds=1))),
    "it has booted within a day": (DAILY, changes(booted_at=NOW + timedelta(seconds=1))),
    "it is on probation": (DAILY, changes(state=NodeState.PROBATION, probation_until=NOW + timedelta(days=9))),
    "a job runs there": (DAILY, changes(job_id="gpt")),
    "a job is about to start there": (DAILY, changes(claimed_by="gpt")),
    "an incident has it": (DAILY, changes(open_incident="inc-1")),
    "tasks of others run there": (DAILY, someone_works_there),
    "somebody has drained it": (DAILY, someone_drains_it),
    "there is no slot": (with_pool(DAILY, budget=Budget(max_nodes=0, floor_nodes=0)), nothing),
    "a job waits for nodes": (DAILY, a_job_waits),
    "a broken node would find no slot": (with_pool(DAILY, budget=TWO), one_slot_is_left),
}


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_it_is_left_alone_where(why: str) -> None:
    policy, happens = LEFT_ALONE[why]
    fleet = Fleet(policy)
    happens(fleet)

    assert fleet.is_swept() == []


def test_where_another_slot_is_free_it_is_diagnosed_beside_a_broken_node() -> None:
    fleet = Fleet(with_pool(DAILY, budget=Budget(max_nodes=3, max_percent=100)))
    one_slot_is_left(fleet)

    assert fleet.is_swept() == [SPARE]


def test_it_takes_no_place_of_a_full_budget() -> None:
    fleet = Fleet(with_pool(DAILY, budget=Budget(max_nodes=1)))
    fleet.is_swept()
    assert fleet.ports.pools.claim("demo", BROKEN, 9)

    fleet.is_walked()

    assert fleet.steps == [Step.ISOLATE, Step.CLOSE]
    assert fleet.node(SPARE).state is NodeState.HEALTHY


def test_the_sweep_looks_for_one() -> None:
    fleet = Fleet(DAILY.model_copy(update={"silence": ACT.silence.model_copy(update={"enabled": False})}))

    assert sweep(fleet.ports, fleet.policy).idle_nodes == [SPARE]


def test_a_node_does_not_call_itself_idle_to_get_around_the_guardrails() -> None:
    claim = xid(79, code=IDLE_CHECK, family=Family.host, verdict=Verdict.DEGRADED, node_id=PEER, instance_id=PEER)
    fleet = FakeCluster(with_pool(budget=Budget(max_nodes=0, floor_nodes=0)))
    fleet.on_wait = lambda: None

    assert fleet.reports(claim).end == "Escalated"
