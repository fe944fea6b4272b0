"""A new node is diagnosed before it serves: which node is new, and who leaves the line."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import NodeBooted
from nodeheal.contract.names import new_nodes_line
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.operations.new_node import stand_in_line
from nodeheal.ports import Ports
from nodeheal.services.intake import new_nodes
from nodeheal.services.saving import node_of
from tests.support.builders import ACT, NOW, node
from tests.support.incident_steps import A
from tests.support.pauses import pause_of_node
from tests.support.three_nodes import booted


@pytest.mark.parametrize(
    ("event", "changes", "stands"),
    [
        (booted(), {}, True),
        (booted("boot-0"), {}, False),  # an event of an older boot, late
        (booted(booted_at=NOW - timedelta(days=30)), {}, False),
        (booted(), {"passed_at": NOW}, False),
    ],
)
def test_a_node_is_new_at_its_first_boot(
    three_nodes: Ports, event: NodeBooted, changes: dict[str, Any], stands: bool
) -> None:
    assert three_nodes.nodes.save(replace(node_of(A, three_nodes), **changes))

    assert (new_nodes.note_new_node(event, three_nodes) == "demo") is stands
    assert bool(three_nodes.operations.queued(new_nodes_line("demo"))) is stands


@pytest.mark.parametrize(
    "changes",
    [
        {"passed_at": NOW},
        {"healthy_since": NOW},
        {"open_incident": "inc-1"},
        {"job_id": "llama"},
        {"claimed_by": "llama"},
        {"past_boots": ("boot-0",)},
        {"state": NodeState.QUARANTINED},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_node_that_anybody_has_or_has_had_is_not_new(changes: dict[str, Any]) -> None:
    assert not new_nodes._has_served(node(A))
    assert new_nodes._has_served(node(A, **changes))


def gone(ports: Ports) -> None:
    del ports.nodes.nodes[A]  # type: ignore[attr-defined]


def moved(ports: Ports) -> None:
    assert ports.nodes.save(replace(node_of(A, ports), pool="gold"))


def a_month(ports: Ports) -> None:
    ports.clock.advance(90 * 86_400)  # type: ignore[attr-defined]


@pytest.mark.parametrize("happens", [gone, moved, a_month])
def test_who_has_waited_in_vain_leaves_the_line(three_nodes: Ports, happens: Callable[[Ports], None]) -> None:
    stand_in_line(node_of(A, three_nodes), three_nodes)
    happens(three_nodes)

    assert new_nodes.diagnose_new_nodes("demo", three_nodes, ACT) == []
    assert three_nodes.operations.queued(new_nodes_line("demo")) == []


def test_a_node_that_is_paused_is_not_touched_yet(three_nodes: Ports) -> None:
    paused = pause_of_node(A)

    assert new_nodes._why_not_now(node(A), paused, three_nodes, ACT) == "it is not in service, or paused"
    assert new_nodes._why_not_now(node(A), NO_PAUSES, three_nodes, ACT) == ""
