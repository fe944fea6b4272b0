"""An order by a node's mark is the same request as by the command: once, and by approval where anybody could set it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from nodeheal.api import node_queries
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import NEEDS_APPROVAL, OPERATOR_REQUEST, OPERATOR_SOURCE, node_pause_sk
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Ending,
    Escalation,
    IncidentState,
    NodeState,
    Outcome,
    Provider,
    SchedulerKind,
    Step,
)
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node_order import ClusterOrders, NodeOrder, StandingOrder
from nodeheal.domain.fleet.pause import Pause
from nodeheal.domain.recovery.incident import Incident
from nodeheal.services.operators.take_orders import take_orders
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, FrozenClock, behave_as, memory_ports, node, stored_node
from tests.support.policies import with_policy
from tests.support.recovery_story import Story

if TYPE_CHECKING:
    from nodeheal.ports import Ports

A, B = "i-0aaaaaaaaaaaaaaaa", "i-0bbbbbbbbbbbbbbbb"
EKS = Cluster(SchedulerKind.KUBERNETES, "training")
WHO = "somebody who may label nodes of cluster training"


class Marks:
    """Implements NodeOrders. `stand`: what is marked; `fails`: why nothing is known."""

    def __init__(self) -> None:
        self.stand: list[NodeOrder] = []
        self.fails: Exception | None = None
        self.asked: list[Cluster] = []
        self.limited = True

    def pending(self, cluster: Cluster) -> Sequence[NodeOrder]:
        self.asked.append(cluster)
        if self.fails is not None:
            raise self.fails
        return list(self.stand)

    def is_limited(self, cluster: Cluster) -> bool:
        return self.limited


class World:
    """Two nodes of HyperPod, whose cluster was looked at before anybody has ordered anything."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.ports: Ports = memory_ports(self.clock)
        self.marks = Marks()
        behave_as(self.ports, orders=self.marks)
        for name in (A, B):
            self.has(name)
        self.look()

    def has(self, name: str, **changes: Any) -> None:
        facts = {"provider": Provider.hyperpod, "scheduler": SchedulerKind.KUBERNETES, "last_seen": NOW}
        assert self.ports.nodes.save(node(name, **{**facts, **changes}))

    def mark(self, name: str = A, action: Action = Action.REBOOT, *, is_authorised: bool = True) -> None:
        """The node's only mark."""
        self.clear(name)
        self.marks.stand.append(NodeOrder(name, action, WHO, f"health=Pending{action}", is_authorised))

    def clear(self, name: str = A) -> None:
        self.marks.stand = [order for order in self.marks.stand if order.machine_id != name]

    def look(self, *clusters: Cluster) -> list[str]:
        """A minute later."""
        self.clock.now += timedelta(minutes=1)
        return take_orders(clusters or [EKS], self.clock() + timedelta(seconds=30), self.ports, ACT)

    def pause(self, name: str = A) -> None:
        self.ports.pauses.save(node_pause_sk(name), Pause(NOW + timedelta(hours=2), "a new riser card"))

    def unpause(self) -> None:
        self.ports.pauses.items.clear()  # type: ignore[attr-defined]

    @property
    def incidents(self) -> list[Incident]:
        return list(self.ports.incidents.incidents.values())  # type: ignore[attr-defined]

    @property
    def roots(self) -> list[HealthEvent]:
        return [incident.root for incident in self.incidents]

    @property
    def standing(self) -> tuple[StandingOrder, ...]:
        [found] = self.ports.fleet_index.cursor().orders
        return found.standing

    def over(self, name: str = A) -> None:
        """Its incident is closed, and nothing was done to it."""
        at = stored_node(self.ports, name)
        assert at.open_incident is not None
        incidents: Any = self.ports.incidents
        closed = replace(incidents.incidents[at.open_incident], state=IncidentState.CLOSED)
        incidents.incidents[at.open_incident] = closed
        assert self.ports.nodes.save(replace(at, open_incident=None))


@pytest.mark.parametrize(("action", "subcode"), [(Action.REBOOT, "REBOOT"), (Action.REPLACE, "REPLACE")])
def test_an_order_is_the_request_that_the_command_makes(action: Action, subcode: str) -> None:
    it = World()
    it.mark(A, action)

    taken = it.look()

    [root] = it.roots
    assert (taken, root.node_id, root.source, root.code) == ([A], A, OPERATOR_SOURCE, OPERATOR_REQUEST)
    assert (root.subcode, root.evidence, root.labels) == (subcode, f"{WHO}: health=Pending{action}", {})
    assert Story(root).next().step is Step.ISOLATE


def test_a_mark_that_stays_is_one_order_also_when_its_incident_is_over() -> None:
    it = World()
    it.mark()

    taken = [it.look(), it.look()]
    it.over()
    taken.append(it.look())

    assert (taken, len(it.incidents)) == ([[A], [], []], 1)


def test_a_mark_that_was_gone_is_a_new_order_and_so_is_another_value() -> None:
    it = World()
    it.mark()
    it.look()
    it.over()
    it.clear()
    it.look()
    it.mark()
    it.look()
    it.over()
    it.mark(A, Action.REPLACE)
    it.look()

    assert [root.subcode for root in it.roots] == ["REBOOT", "REBOOT", "REPLACE"]


@pytest.mark.parametrize("mode", ["observe", "act"])
def test_an_order_that_anybody_could_give_asks_for_approval_whatever_the_mode(mode: str) -> None:
    it = World()
    it.mark(is_authorised=False)

    it.look()

    [root] = it.roots
    story = Story(root, policy=with_policy(default_pool={"mode": mode}))
    decision = story.next()
    assert root.labels == {NEEDS_APPROVAL: "true"}
    assert (decision.step, decision.awaits, decision.action) == (Step.WAIT, Awaited.APPROVAL, Action.REBOOT)
    assert "it is not known that who asks for it may" in decision.reason
    assert story.then(Outcome.DONE).next().step is Step.ISOLATE
    assert story.isolated().next().step is Step.REBOOT


def test_an_order_that_is_not_approved_goes_to_a_human_and_touches_nothing() -> None:
    it = World()
    it.mark(is_authorised=False)
    it.look()

    decision = Story(it.roots[0]).then(Outcome.REFUSED).next()

    assert (decision.ending, decision.escalation) == (Ending.HANDED_TO_A_HUMAN, Escalation.APPROVAL_REFUSED)


def test_what_stood_at_the_first_look_at_a_cluster_asks_for_approval_and_what_comes_later_does_not() -> None:
    it = World()
    it.ports.fleet_index.save_cursor(replace(it.ports.fleet_index.cursor(), orders=()))
    it.mark(A)

    it.look()
    it.mark(B)
    it.look()

    assert {root.node_id: root.labels for root in it.roots} == {A: {NEEDS_APPROVAL: "true"}, B: {}}


@pytest.mark.parametrize("doubted_first", [True, False])
def test_an_order_that_waits_asks_for_approval_where_anybody_could_give_it_at_any_look(doubted_first: bool) -> None:
    it = World()
    it.pause()
    it.mark(is_authorised=not doubted_first)
    it.look()
    it.mark(is_authorised=doubted_first)
    it.look()
    it.unpause()

    it.look()

    assert [root.labels for root in it.roots] == [{NEEDS_APPROVAL: "true"}]


def test_an_order_waits_while_the_node_is_busy_or_paused() -> None:
    it = World()
    it.pause()
    it.ports.nodes.save(replace(stored_node(it.ports, B), open_incident="inc-1"))
    it.mark(A)
    it.mark(B)

    waited = it.look()
    shown = [node_queries.node(name, it.ports, ACT).orders for name in (A, B)]
    it.clear(B)
    it.unpause()
    done = it.look()

    assert (waited, done, [root.node_id for root in it.roots]) == ([], [A], [A])
    assert "is paused" in shown[0][Action.REBOOT]
    assert "has an open incident" in shown[1][Action.REBOOT]
    assert node_queries.node(A, it.ports, ACT).orders == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"provider": Provider.ec2},
        {"cluster": "other"},
        {"state": NodeState.UNENROLLED},
        {"state": NodeState.RETIRED},
        None,
    ],
    ids=str,
)
def test_of_another_node_it_is_no_order(changes: dict[str, Any] | None) -> None:
    it = World()
    it.ports.nodes.nodes.pop(A)  # type: ignore[attr-defined]
    if changes is not None:
        it.has(A, **changes)
    it.mark()

    assert (it.look(), it.incidents) == ([], [])


def test_orders_stand_while_a_cluster_does_not_answer_and_it_is_forgotten_when_it_is_gone() -> None:
    it = World()
    it.mark()
    it.look()
    it.over()
    it.marks.fails = NotAccepted("it has not answered")
    it.look()
    kept = it.standing
    it.marks.fails = None
    again = it.look()
    it.marks.fails = NotFound("EKS has no such cluster")
    it.look()

    [order] = kept
    assert (order.node_id, order.needs_approval, order.is_taken, again) == (A, False, True, [])
    assert it.ports.fleet_index.cursor().orders == ()


def test_a_cluster_is_asked_again_though_no_node_of_it_was_met_and_not_when_the_time_is_up() -> None:
    it = World()
    it.marks.asked.clear()

    take_orders([], it.clock() + timedelta(seconds=1), it.ports, ACT)
    take_orders([EKS], it.clock(), it.ports, ACT)

    assert it.marks.asked == [EKS]


def test_no_more_orders_are_kept_than_have_room() -> None:
    it = World()
    it.marks.stand = [NodeOrder(f"i-{n:017x}", Action.REBOOT, WHO, "h", is_authorised=True) for n in range(300)]
    it.mark(A)

    it.look()
    before = len(it.standing)
    it.marks.stand = it.marks.stand[200:]

    assert (before, it.look()) == (200, [A])


def test_the_sweep_asks_only_clusters_with_nodes_of_hyperpod() -> None:
    it = World()
    it.ports.fleet_index.save_cursor(replace(it.ports.fleet_index.cursor(), orders=()))
    it.has("i-1", provider=Provider.ec2, cluster="plain")
    it.has("i-2", state=NodeState.RETIRED, cluster="former")
    it.marks.asked.clear()
    it.mark()

    swept = sweep(it.ports, ACT)
    again = sweep(it.ports, ACT)

    assert (swept.orders, again.orders, it.marks.asked) == ([A], [], [EKS, EKS])
    first_look = StandingOrder(A, Action.REBOOT, needs_approval=True, is_taken=True)
    assert it.ports.fleet_index.cursor().orders == (ClusterOrders(EKS, (first_look,), is_limited=True),)


def test_a_mark_that_may_be_older_than_what_limits_it_asks_for_approval() -> None:
    it = World()
    it.marks.limited = False
    it.look()
    it.marks.limited = True
    it.mark(A)
    it.look()
    it.mark(B)
    it.look()

    assert {order.node_id: order.needs_approval for order in it.standing} == {A: True, B: False}


def test_a_mark_that_comes_where_others_had_no_room_asks_for_approval() -> None:
    it = World()
    crowd = [NodeOrder(f"i-{n:017x}", Action.REBOOT, WHO, "h", is_authorised=True) for n in range(201)]
    it.marks.stand = crowd
    it.look()
    it.marks.stand = []
    it.mark(A)
    it.look()

    assert [(order.node_id, order.needs_approval) for order in it.standing] == [(A, True)]


def test_an_order_whose_request_breaks_off_is_not_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    it = World()
    it.mark()

    def breaks(*_: object) -> None:
        raise RuntimeError("the workflow may have been started")

    with monkeypatch.context() as broken:
        broken.setattr(it.ports.workflows, "start", breaks)
        with pytest.raises(RuntimeError):
            it.look()

    assert (it.look(), [order.is_taken for order in it.standing]) == ([], [True])


def test_a_scheduler_that_takes_no_orders_is_not_asked() -> None:
    it = World()
    behave_as(it.ports, orders=None)
    it.mark()

    assert (it.look(), it.incidents) == ([], [])
