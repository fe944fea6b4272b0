"""A new node is diagnosed before it serves, apart from the disruption budget; old and busy ones are left alone."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.health_event import HealthEvent, NodeBooted
from nodeheal.contract.names import NEW_NODE
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Family, IncidentState, NodeState, Step, Verdict
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode, NewNodes
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import Ingested
from nodeheal.services.intake.ingest import ingest as take
from nodeheal.services.intake.new_nodes import NEW_SECONDS, diagnose_new_nodes, on_first_boot
from nodeheal.services.operators.operator_guardrails import pause_pool
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, scheduler_in, with_pool, xid
from tests.support.fake_cluster import BROKEN, FakeCluster
from tests.support.walker import Walk

NEW = "mi-0ddddddddddddddddd"
OTHERS = [f"mi-0eeeeeeeeeeeeeee{one:02}" for one in range(20)]


class Fleet(FakeCluster):
    """A pool to which new nodes come."""

    def comes_up(self, name: str = NEW, boot_id: str = "boot-1", running_for: float = 60) -> list[str]:
        """The agent of the node reports its boot; the nodes that are diagnosed then."""
        fact = {**self._fact(name, boot_id), "event_id": f"{boot_id}-{name}"}
        booted_at = self.clock() - timedelta(seconds=running_for)
        booted = NodeBooted(**fact, booted_at=booted_at, address="10.0.0.7", accelerators=8)
        wakeup.on_node_booted(booted, self.ports)
        return on_first_boot(booted, self.ports, lambda: self.policy)

    def is_walked(self, name: str = NEW) -> Walk:
        """The workflow of the node's incident runs to its end."""
        self.incident_id = str(self.node(name).open_incident)
        return self._walk("recover_node", {"incident_id": self.incident_id}, self._answers())

    @property
    def steps(self) -> list[Step]:
        history = self.ports.incidents.history(self.incident_id)
        return [turn.decision.step for turn in history.turns]


def test_a_new_node_serves_once_it_has_passed_its_diagnostics() -> None:
    fleet = Fleet()
    assert fleet.comes_up() == [NEW]
    assert not fleet.node(NEW).is_available(fleet.clock(), NO_PAUSES)

    walked = fleet.is_walked()

    assert walked.end == "Recovered"
    assert fleet.steps == [Step.ISOLATE, Step.DIAGNOSE, Step.RETURN, Step.CLOSE]
    node = fleet.node(NEW)
    assert node.state is NodeState.HEALTHY
    assert node.passed_at is not None
    assert node.is_available(fleet.clock(), NO_PAUSES)
    assert node.recoveries == ()
    assert fleet.told == []
    assert fleet.comes_up(boot_id="boot-2") == []


def test_one_that_fails_waits_for_a_human_and_takes_no_slot_of_the_budget() -> None:
    fleet = Fleet()
    fleet.diagnoses[NEW] = Verdict.FAILED
    fleet.comes_up()

    walked = fleet.is_walked()

    assert walked.end == "Escalated"
    assert fleet.node(NEW).state is NodeState.QUARANTINED
    assert fleet.ports.pools.holders("demo") == []
    [told] = [told for _, told in fleet.ports.notifier.announced]  # type: ignore[attr-defined]
    assert (told.severity, NEW in told.subject) == ("INFO", True)
    assert "New node: diagnostics failed: memory; it stays isolated" in told.body
    assert "takes no slot of the" in told.body
    assert fleet.reports(xid(79)).end == "Recovered"


def test_a_full_budget_keeps_no_new_node_waiting() -> None:
    fleet = Fleet(with_pool(budget=Budget(max_nodes=0, floor_nodes=0)))

    fleet.comes_up()

    assert fleet.is_walked().end == "Recovered"


def test_so_many_are_diagnosed_max_nodes_and_the_sweep_goes_on_with_the_next() -> None:
    policy = with_pool(new_nodes=NewNodes(max_nodes=2)).model_copy(
        update={"silence": ACT.silence.model_copy(update={"enabled": False})}
    )
    fleet = Fleet(policy)
    begun = [fleet.comes_up(name) for name in OTHERS[:4]]
    waiting = sweep(fleet.ports, policy).new_nodes
    fleet.is_walked(OTHERS[0])

    assert begun == [[OTHERS[0]], [OTHERS[1]], [], []]
    assert waiting == []
    assert sweep(fleet.ports, policy).new_nodes == [OTHERS[2]]


def test_the_place_of_an_incident_that_broke_off_is_given_back() -> None:
    fleet = Fleet(with_pool(new_nodes=NewNodes(max_nodes=1)))
    fleet.comes_up(OTHERS[0])
    broken = fleet.ports.incidents.incident(str(fleet.node(OTHERS[0]).open_incident))
    fleet.ports.incidents.finish(replace(broken, state=IncidentState.ESCALATED))

    assert fleet.comes_up(OTHERS[1]) == [OTHERS[1]]


def test_many_new_nodes_trip_no_breaker() -> None:
    fleet = Fleet(with_pool(new_nodes=NewNodes(max_nodes=100)))
    for name in OTHERS:
        fleet.comes_up(name)

    assert {fleet.is_walked(name).end for name in OTHERS} == {"Recovered"}
    assert fleet.reports(xid(79)).end == "Recovered"
    assert not fleet.ports.pools.get("demo").is_tripped


def test_a_fault_that_it_shows_meanwhile_is_healed_without_a_slot_of_the_budget() -> None:
    fleet = Fleet(with_pool(budget=Budget(max_nodes=0, floor_nodes=0)))
    fleet.comes_up()
    isolate = fleet._gang_stops

    def shows_a_fault(request: StepRequest) -> None:
        isolate(request)
        fleet._ingest(xid(79, node_id=NEW, instance_id=NEW, observed_at=fleet.clock()))

    fleet._gang_stops = shows_a_fault  # type: ignore[method-assign]
    # The fault comes before the decision.
    fleet._decides_at_once = lambda request: None  # type: ignore[method-assign]
    walked = fleet.is_walked()

    assert (walked.end, fleet.node(NEW).state) == ("Recovered", NodeState.PROBATION)
    assert ("reboot-node", NEW) in fleet.commands


Change = Callable[[Fleet], object]


def _changes(**changes: object) -> Change:
    def change(fleet: Fleet) -> None:
        fleet.ports.nodes.save(replace(fleet.node(NEW), **changes))  # type: ignore[arg-type]

    return change


def _task_of_others(fleet: Fleet) -> None:
    unmanaged_task = UnmanagedTask("task/1", "family:1", "service:none")
    scheduler_in(fleet.ports).unmanaged["task/1"] = (NEW, unmanaged_task)


LEFT_ALONE: dict[str, tuple[RecoveryPolicy, Change]] = {
    "the policy does not want it": (with_pool(new_nodes=NewNodes(diagnose=False)), lambda _: None),
    "observe mode": (with_pool(mode=Mode.observe), lambda _: None),
    "a human approves isolations": (with_pool(modes={Action.ISOLATE: Mode.approve}), lambda _: None),
    "opted out": (ACT.model_copy(update={"opted_out": {NEW: "ours"}}), lambda _: None),
    "paused": (ACT, lambda fleet: pause_pool("demo", 3_600, "a human is at work", fleet.ports)),
    "the breaker is open": (
        ACT,
        lambda fleet: fleet.ports.pools.save(fleet.ports.pools.get("demo").tripped("many", fleet.clock())),
    ),
    "a job runs there": (ACT, _changes(job_id="llama")),
    "a job is about to start there": (ACT, _changes(claimed_by="llama")),
    "a replacement has it": (ACT, _changes(open_incident="inc-1")),
    "a human gave it back": (ACT, _changes(healthy_since=NOW)),
    "tasks of others run there": (ACT, _task_of_others),
}


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_it_is_left_alone_where(why: str) -> None:
    policy, change = LEFT_ALONE[why]
    fleet = Fleet(with_pool(policy, new_nodes=NewNodes(diagnose=False)))
    fleet.comes_up()
    change(fleet)
    fleet.policy = policy

    assert diagnose_new_nodes("demo", fleet.ports, fleet.policy) == []
    assert fleet.ports.pools.holders("demo#new") == []


def test_one_that_was_left_alone_is_diagnosed_when_nothing_speaks_against_it() -> None:
    fleet = Fleet(with_pool(new_nodes=NewNodes(diagnose=False)))
    fleet.comes_up()
    fleet.policy = ACT

    assert diagnose_new_nodes("demo", fleet.ports, fleet.policy) == [NEW]


def test_a_machine_that_has_run_for_long_is_not_new() -> None:
    assert Fleet().comes_up(running_for=NEW_SECONDS) == []


def test_a_node_does_not_call_itself_new_to_get_around_the_budget() -> None:
    fleet = Fleet(with_pool(budget=Budget(max_nodes=0, floor_nodes=0)))
    claim = xid(79, code=NEW_NODE, family=Family.host, verdict=Verdict.DEGRADED, node_id=BROKEN)
    forged = HealthEvent.model_validate(claim.model_dump())
    fleet.on_wait = lambda: None

    walked = fleet.reports(forged)

    assert walked.end == "Escalated"
    assert fleet.node(BROKEN).state is NodeState.HEALTHY
    assert take(forged, fleet.ports, fleet.policy) is not Ingested.OPENED
