"""An attempt is reserved before a node is touched, for the node and for its accelerator."""

from dataclasses import replace

import pytest

from nodeheal.contract.vocabulary import NodeState, Step
from nodeheal.domain.recovery.decision_context import accelerator_scope
from nodeheal.ports import Ports
from nodeheal.services.recovery import reserve_attempt
from nodeheal.services.recovery.reserve_attempt import reserve_or_why_not
from nodeheal.services.saving import node_of
from tests.support.builders import xid
from tests.support.incident_steps import A, Incident, take
from tests.support.steps import asking


def _rebooting(serial: str = "S1") -> Incident:
    """An isolated node that is to be rebooted, whose accelerator is known."""
    it = Incident(999)
    event = xid(79, component_serial=serial)
    take(it, event)
    it.isolate()
    return it


def test_an_attempt_that_the_accelerator_refuses_is_given_back_to_the_node() -> None:
    it = _rebooting()
    request = it.request()
    on_node, on_accelerator = request.decision.reserve
    for n in range(on_accelerator.limit.limit):
        it.ports.attempts.reserve(on_accelerator.scope, f"of another incident {n}", on_accelerator.limit)

    refused = reserve_or_why_not(request, it.ports)

    assert refused == "2 of 2 reboots of accelerator S1 in 168 h are spent"
    assert it.ports.attempts.spent(on_node.scope, on_node.limit) == {on_node.limit.group: 0}
    assert on_accelerator.scope == accelerator_scope("S1")


def test_an_attempt_is_told_as_the_nodes_in_the_answer_and_in_the_story() -> None:
    it = _rebooting()

    refused = reserve_or_why_not(it.request(), it.ports)

    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert refused == ""
    assert "attempt reserved: 1 of 1 reboots in 24 h" in told


def test_a_full_window_refuses_the_attempt_and_restarts_count_for_the_job() -> None:
    it = Incident(31)
    request = it.request()
    limit = request.decision.reserve[0].limit

    refused = [reserve_or_why_not(request.model_copy(update={"turn": n}), it.ports) for n in range(limit.limit + 1)]

    assert [bool(why) for why in refused] == [False] * limit.limit + [True]
    assert it.ports.attempts.spent("job#llama", limit) == {limit.group: limit.limit}


@pytest.mark.parametrize("has_place", [True, False])
def test_a_new_node_that_has_a_place_needs_no_slot_to_be_repaired(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, has_place: bool
) -> None:
    assert three_nodes.nodes.save(replace(node_of(A, three_nodes), state=NodeState.ISOLATED, open_incident="inc-1"))
    monkeypatch.setattr(reserve_attempt, "has_place", lambda *_: has_place)
    monkeypatch.setattr(reserve_attempt, "reserve_or_why_not", lambda *_: "")

    why_not = reserve_attempt.reserve_for_node_or_why_not(node_of(A, three_nodes), asking(Step.REBOOT), three_nodes)

    assert ("holds no slot" in why_not) is not has_place
