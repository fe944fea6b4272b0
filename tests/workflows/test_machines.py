"""Recoveries of EC2 nodes, over the real state machines and services: stop and start, spares, turns, new machines."""

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from nodeheal.contract import names
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Ending, NodeState, Outcome, Provider, Step, VerbName, Verdict
from nodeheal.domain.fleet.machine import Alternative, Machine, Power, Termination
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations import engine
from nodeheal.operations.engine import machine_stopped
from tests.support.builders import under_way, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster
from tests.support.policies import with_policy
from tests.support.walker import Walk

if TYPE_CHECKING:
    from collections.abc import Callable

ROOM = {"max_nodes": 1, "max_percent": 100}
TEMPLATE = Machine(BROKEN, instance_type="p5.48xlarge", launch_template="lt-1", subnet="subnet-1")


def pool(**said: Any) -> RecoveryPolicy:
    """A policy whose pools act, and say this."""
    return with_policy(default_pool={"mode": "act", "budget": ROOM, **said})


class Machines(FakeCluster):
    """The same nodes on EC2. What is stopped starts when EC2's event comes; what is launched comes up."""

    def __init__(self, policy: RecoveryPolicy, machine: Machine = TEMPLATE, spare: bool = False) -> None:
        super().__init__(policy, spare=spare)
        machines: Any = self.ports.machines
        self.machines = machines
        self.boots = count(2)
        self.loses_events = False
        for name in (BROKEN, PEER, SPARE)[: 3 if spare else 2]:
            self.ports.nodes.save(replace(self.node(name), provider=Provider.ec2))
            self.machines.machines[name] = replace(machine, machine_id=name)
        self.on_replace = self._new_machine

    def fault(self, code: int = 79) -> Walk:
        return self.reports(xid(code, provider=Provider.ec2))

    @property
    def actions(self) -> list[Action | None]:
        """The escalation steps that were climbed."""
        turns = self.ports.incidents.history(self.incident_id).turns
        return [turn.decision.action for turn in turns if turn.decision.step in (Step.REBOOT, Step.REPLACE)]

    @property
    def launched(self) -> list[str]:
        return list(self.machines.tokens.values())

    def _boots(self, request: StepRequest) -> None:
        name, (_, order) = request.decision.node_id, (self.machines.ordered or [("", Power.START)])[-1]
        if order is Power.STOP and not self.loses_events:
            self._wakes(machine_stopped, name)
            order = self.machines.ordered[-1][1]
        if order is not Power.STOP and self.node_returns and self.machines.ordered:
            self.clock.advance(60)
            self._comes_up(name, f"boot-{next(self.boots)}")

    def _new_machine(self, request: StepRequest) -> None:
        if not self.launched and self.machines.given_back:
            self._wakes(engine.machine_gone, request.decision.node_id)
        elif self.launched:
            self.clock.advance(60)
            self._comes_up(self.launched[-1], "boot-1")

    def _fact(self, name: str, boot_id: str) -> dict[str, Any]:
        return {**super()._fact(name, boot_id), "provider": Provider.ec2}


def steps(walked: Walk) -> list[str]:
    return [s for s in walked.path if s not in ("Open incident", "Decide next step", "Which step?")]


# Stop and start ------------------------------------------------------------------------------------------------------


def fails_until(cluster: Machines, boot_id: str) -> None:
    """The node passes its diagnostics from this boot on."""
    diagnosed: Callable[[StepRequest], None] = cluster._diagnosed

    def verdict(request: StepRequest) -> None:
        is_there = cluster.node().boot_id == boot_id
        cluster.diagnoses[BROKEN] = Verdict.OK if is_there else Verdict.FAILED
        diagnosed(request)

    cluster._diagnosed = verdict  # type: ignore[method-assign]


@pytest.mark.parametrize("loses_events", [False, True])
def test_where_a_reboot_did_not_help_another_host_does(loses_events: bool) -> None:
    cluster = Machines(pool(stop_start=True))
    cluster.loses_events = loses_events
    fails_until(cluster, "boot-3")

    walked = cluster.fault()

    assert walked.end == "Recovered"
    # Without its event the stop is seen at the step's deadline only, and the step is called again for the start.
    assert cluster.actions == [Action.REBOOT, Action.STOP_START] + [Action.STOP_START] * loses_events
    assert cluster.machines.ordered == [(BROKEN, order) for order in (Power.REBOOT, Power.STOP, Power.START)]
    assert cluster.job_nodes == [BROKEN, PEER]


def test_one_that_never_came_back_is_stopped_and_started_too() -> None:
    cluster = Machines(pool(stop_start=True))
    cluster.node_returns = False

    cluster.fault()

    assert cluster.actions == [Action.REBOOT, Action.STOP_START, Action.REPLACE]


def test_in_a_group_it_is_refused_at_no_cost_and_the_group_replaces_it() -> None:
    cluster = Machines(pool(stop_start=True), replace(TEMPLATE, group="trainers", launch_template=""))
    cluster.machines.groups.add("trainers")
    cluster.diagnoses[BROKEN] = Verdict.FAILED

    cluster.fault()

    assert cluster.actions == [Action.REBOOT, Action.STOP_START, Action.REPLACE]
    assert [order for _, order in cluster.machines.ordered] == [Power.REBOOT]
    limit = cluster.policy.limits[Action.STOP_START]
    assert cluster.ports.attempts.spent(f"node#{BROKEN}", limit) == {Action.STOP_START: 0}
    assert cluster.machines.given_back == [(BROKEN, Termination.TERMINATE)]


def test_without_room_to_start_it_is_replaced_where_there_is_room_and_the_stopped_machine_goes() -> None:
    cluster = Machines(pool(stop_start=True, replacement={"subnets": ["subnet-2"]}))
    cluster.machines.full = {Alternative("subnet-1", "p5.48xlarge")}
    cluster.diagnoses[BROKEN] = Verdict.FAILED

    walked = cluster.fault()

    [new] = cluster.launched
    assert walked.end == "Recovered"
    assert cluster.machines.machines[new].subnet == "subnet-2"
    assert cluster.machines.given_back == [(BROKEN, Termination.TERMINATE)]
    assert cluster.job_nodes == [new, PEER]


def test_without_any_room_a_human_hears_that_it_is_stopped() -> None:
    cluster = Machines(pool(stop_start=True))
    cluster.machines.is_full = True
    cluster.diagnoses[BROKEN] = Verdict.FAILED
    cluster.on_wait = lambda: None

    walked = cluster.fault()

    incident = cluster.ports.incidents.history(cluster.incident_id).incident
    assert walked.end == "Escalated"
    assert f"{BROKEN} is stopped, and there is no capacity to start it" in incident.summary
    assert any(subject.startswith("[nodeheal] no capacity") for subject in cluster.told)
    # By each wait, which knows until when, and not by the decision before it as well: the first of a key is sent.
    told = [kind for kind, _ in cluster.ports.notifier.announced]  # type: ignore[attr-defined]
    assert told.count(names.INCIDENT_WAITING) == walked.path.count("Wait for condition")


# Replacement ---------------------------------------------------------------------------------------------------------


def test_a_full_reservation_is_left_first_where_the_policy_says_so() -> None:
    cluster = Machines(pool(replacement={"terminate_first": True}))

    walked = cluster.fault(74)

    [new] = cluster.launched
    assert walked.end == "Recovered"
    assert cluster.machines.given_back == [(BROKEN, Termination.TERMINATE)]
    assert cluster.job_nodes == [new, PEER]
    assert any(walk.path.count("Replace node") == 2 for walk in cluster.walked)


@pytest.mark.parametrize("prefers", [True, False])
def test_a_warm_spare_is_taken_before_a_launch_only_where_the_policy_prefers_it(prefers: bool) -> None:
    cluster = Machines(pool(replacement={"prefer_spare": prefers}), spare=True)

    cluster.fault(74)

    assert (cluster.launched == []) is prefers
    assert cluster.job_nodes == ([SPARE, PEER] if prefers else [*cluster.launched, PEER])
    assert cluster.node().state is (NodeState.QUARANTINED if prefers else NodeState.RETIRED)


def test_a_pool_that_prefers_spares_and_has_none_launches() -> None:
    cluster = Machines(pool(replacement={"prefer_spare": True}))

    assert cluster.fault(74).end == "Recovered"
    assert cluster.job_nodes == [*cluster.launched, PEER]


def test_no_more_nodes_are_replaced_at_once_than_the_policy_allows_and_the_rest_wait_their_turn() -> None:
    cluster = Machines(pool(replacement={"max_nodes": 1}))
    other = under_way(cluster.ports, VerbName.REPLACE, node_id=PEER, incident_id="inc-other")
    assert cluster.ports.pools.claim("demo#replacements", PEER, 1)
    cluster.on_wait = lambda: cluster.ports.operations.save(other.delivered())  # the other one is over

    walked = cluster.fault(74)

    results = [turn.result for turn in cluster.ports.incidents.history(cluster.incident_id).turns if turn.result]
    replaced = [result for result in results if result.step is Step.REPLACE]
    assert [result.outcome for result in replaced] == [Outcome.REFUSED, Outcome.DONE]
    assert steps(walked).count("Wait for condition") == 1
    assert walked.end == "Recovered"
    assert [subject.partition(":")[0] for subject in cluster.told] == ["[nodeheal] in turn", "[nodeheal] recovered"]
    assert cluster.ports.incidents.history(cluster.incident_id).incident.ending is Ending.RECOVERED
