"""Since when a node is as it is, and what is left to be done with it."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nodeheal.api import node_queries
from nodeheal.contract.vocabulary import Action, NodeState
from nodeheal.domain.fleet.node import StateChange
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.timeline import NodeDrained, TimelineEntry
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery.pool_size import note_size
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_node, xid
from tests.support.policies import with_policy

NODE = node().node_id
EARLIER, LATER = NOW - timedelta(hours=2), NOW + timedelta(minutes=2)


def world(*, is_broken: bool, is_drained: bool = False, **changes: object) -> Ports:
    """A node that was good two hours ago, with an incident or without."""
    clock = FrozenClock()
    ports = memory_ports(clock)
    ports.nodes.save(node(healthy_since=EARLIER))
    if is_broken:
        ingest(xid(79), ports, ACT)
    found = stored_node(ports, NODE)
    clock.advance(120)
    if found.open_incident is not None:
        payload = NodeDrained() if is_drained else None
        ports.incidents.append(found.open_incident, TimelineEntry(clock(), "so", "so it went", payload))
    save_node(ports, found, **changes)
    return ports


@pytest.mark.parametrize(
    ("ports", "since"),
    [
        (world(is_broken=False), EARLIER),
        (world(is_broken=True), EARLIER),
        (world(is_broken=True, state=NodeState.PROBATION), EARLIER),
        (world(is_broken=True, state=NodeState.SUSPECT), NOW),
        (world(is_broken=True, is_drained=True, state=NodeState.SUSPECT), NOW),
        (world(is_broken=True, is_drained=True, state=NodeState.ISOLATED), LATER),
        (world(is_broken=True, state=NodeState.ISOLATED), None),
        (world(is_broken=False, state=NodeState.QUARANTINED), None),
        (world(is_broken=True, state=NodeState.QUARANTINED, open_incident="inc-gone"), None),
    ],
    ids=[
        "healthy",
        "healthy, and at its incident's beginning",
        "on probation",
        "a suspect",
        "a suspect that was drained before",
        "drained",
        "not drained yet",
        "nobody knows",
        "its incident is forgotten",
    ],
)
def test_since_when_it_is_so_says_its_proof_or_its_incident(ports: Ports, since: datetime | None) -> None:
    assert node_queries.node(NODE, ports, ACT).since == since


def test_a_state_began_when_the_node_entered_it_and_not_with_its_proof() -> None:
    ports = world(is_broken=False)
    found = stored_node(ports, NODE)
    save_node(ports, found, state_changes=(StateChange(LATER, found.state, "back to service"),))

    assert node_queries.node(NODE, ports, ACT).since == LATER


@pytest.mark.parametrize(
    ("policy", "has_it"), [(ACT, False), (with_policy(default_pool={"mode": "act", "stop_start": True}), True)]
)
def test_a_stop_and_start_is_left_only_where_its_pool_has_them(policy: RecoveryPolicy, has_it: bool) -> None:
    left = node_queries.node(NODE, world(is_broken=False), policy).attempts_left

    assert (Action.STOP_START in left) is has_it
    assert (Action.RESTART_WORKLOAD in left, left[Action.REBOOT]) == (False, 1)


def test_the_slots_of_a_pool_that_was_counted_are_known_without_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = world(is_broken=False)
    note_size("demo", 1_000, ports)
    policy = with_policy(default_pool={"budget": {"max_nodes": 50, "max_percent": 2}})
    monkeypatch.setattr(type(ports.nodes), "in_pool", lambda *_: pytest.fail("all nodes of the pool were read"))
    later = replace(ports, clock=FrozenClock(NOW + timedelta(days=1)))

    assert node_queries.node(NODE, later, policy).slots == 20
