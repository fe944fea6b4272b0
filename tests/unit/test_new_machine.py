"""Which replacement a machine that has booted is offered to."""

from typing import Any

import pytest

from nodeheal.contract.vocabulary import Provider, VerbName
from nodeheal.domain.fleet.machine import Machine
from nodeheal.ports import Ports
from nodeheal.services.recovery import new_machine, new_node_places
from nodeheal.services.saving import node_of
from tests.support.builders import memory_ports, node, under_way
from tests.support.incident_steps import A, B
from tests.support.three_nodes import three_nodes

__all__ = ["three_nodes"]  # a fixture


def test_a_node_that_one_replacement_may_not_have_is_offered_to_the_next(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (under_way(memory_ports(), VerbName.REPLACE, incident_id=name) for name in ("inc-1", "inc-2"))
    offered: list[str] = []
    monkeypatch.setattr(three_nodes.machines, "describe", lambda _: Machine("i-1", group="trainers"))
    monkeypatch.setattr(three_nodes.operations, "queued", lambda line: [first, second] if "trainers" in line else [])
    monkeypatch.setattr(new_machine, "is_made_for", lambda *_: True)
    monkeypatch.setattr(new_machine, "has_taken", lambda operation, _: operation is second)
    monkeypatch.setattr(new_machine, "reconcile", lambda *_: None)

    def take(operation: Any, *_: Any) -> Any:
        offered.append(operation.incident_id)
        return operation

    monkeypatch.setattr(new_machine, "take_new_node", take)

    new_machine.on_machine_booted(node("i-1", provider=Provider.ec2), three_nodes)

    assert offered == ["inc-1", "inc-2"]


def test_a_place_that_nobody_needs_any_more_goes_to_the_next(three_nodes: Ports) -> None:
    assert new_node_places.claim_place(node_of(A, three_nodes), 1, three_nodes)
    assert new_node_places.claim_place(node_of(B, three_nodes), 1, three_nodes)  # A has no incident that would hold it
    assert not new_node_places.has_place(node_of(A, three_nodes), three_nodes)
