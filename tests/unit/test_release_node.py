"""A node that a broken recovery has left is released, retired or closed by hand, and nothing of it stays behind."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.release_node import release_node
from tests.support.builders import memory_ports, node, scheduler_in, stored_node
from tests.support.crashes import lost_call
from tests.support.enrolment import retire
from tests.support.incident_steps import A, C, Incident, claimed_by


def handed_over(state: NodeState) -> Incident:
    """Its workflow broke when the node was in this state: isolated once, with its slot and our switch."""
    it = Incident()
    it.isolate()
    it.ports.incidents.finish(replace(it.ports.incidents.history(it.id).incident, state=IncidentState.ESCALATED))
    it.ports.nodes.save(replace(it.node(), state=state))
    return it


def left_of(it: Incident) -> tuple[object, ...]:
    """The slots, who takes no work, what the node names, and how the incident stands."""
    scheduler: Any = scheduler_in(it.ports)
    node, incident = it.node(), it.ports.incidents.history(it.id).incident
    return list(it.ports.pools.holders("demo")), scheduler.draining, node.open_incident, incident.state


NOTHING: tuple[object, ...] = ([], set(), None, IncidentState.CLOSED)


def test_a_return_that_broke_off_leaves_nothing_when_its_incident_is_closed_by_hand() -> None:
    it = handed_over(NodeState.PROBATION)  # written as in service, and died before it was switched on

    close_incident(it.id, "ada: it is fine", it.ports)

    assert left_of(it) == NOTHING
    assert not it.node().drained_by_us


def test_a_node_in_service_whose_recovery_broke_may_be_released_too() -> None:
    it = handed_over(NodeState.PROBATION)

    release_node(A, "ada: it is fine", it.ports)

    assert left_of(it) == NOTHING


@pytest.mark.parametrize("broken", ["release", "undrain"])
def test_a_release_that_died_leaves_nothing_when_it_is_called_again(broken: str) -> None:
    it = handed_over(NodeState.QUARANTINED)
    port: Any = it.ports.pools if broken == "release" else scheduler_in(it.ports)
    works = getattr(port, broken)
    setattr(port, broken, lost_call)
    with pytest.raises(ConnectionError):
        release_node(A, "ada: repaired", it.ports)
    setattr(port, broken, works)

    release_node(A, "ada: repaired", it.ports)

    assert left_of(it) == NOTHING


class NoMarks:
    """Nothing carries the mark."""

    def of(self, node: object) -> list[Any]:
        return []

    def put(self, node: object, mark: object, rack: str = "") -> None: ...

    def take(self, node: object, mark: object) -> None: ...


def test_a_retirement_that_died_leaves_no_slot_and_no_incident_when_it_is_called_again() -> None:
    it, marks = handed_over(NodeState.QUARANTINED), NoMarks()
    works, it.ports.pools.release = it.ports.pools.release, lost_call  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        retire(A, "ada: beyond repair", it.ports, marks)
    it.ports.pools.release = works  # type: ignore[method-assign]

    retire(A, "ada: beyond repair", it.ports, marks)

    slots, _, named, state = left_of(it)
    assert (it.node().state, slots, named, state) == (NodeState.RETIRED, [], None, IncidentState.CLOSED)


def test_a_node_in_service_is_not_retired_because_its_recovery_broke() -> None:
    it = handed_over(NodeState.HEALTHY)

    with pytest.raises(ValueError, match="runs llama"):
        retire(A, "ada: beyond repair", it.ports, NoMarks())

    assert it.node().state is NodeState.HEALTHY


def test_a_replacement_node_that_proved_nothing_can_be_given_back_by_hand() -> None:
    ports = memory_ports()
    ports.nodes.save(node(C, state=NodeState.SUSPECT, state_reason="no proof as a spare"))

    release_node(C, "diagnosed by hand", ports)

    found = stored_node(ports, C)
    assert found.state is NodeState.HEALTHY


def test_a_spare_that_a_broken_workflow_had_claimed_is_free_when_a_human_has_taken_over() -> None:
    it = claimed_by(IncidentState.ESCALATED)

    release_node(A, "repaired", it.ports)

    assert it.node(C).is_available(it.clock(), NO_PAUSES)


def test_a_release_that_died_before_it_switched_the_node_on_goes_on_when_it_is_called_again() -> None:
    it = claimed_by(IncidentState.ESCALATED)
    scheduler: Any = scheduler_in(it.ports)
    undrain = scheduler.undrain
    scheduler.undrain = lost_call
    with pytest.raises(ConnectionError):
        release_node(A, "repaired", it.ports)
    scheduler.undrain = undrain

    after = release_node(A, "repaired", it.ports)

    assert (after.state, after.drained_by_us, scheduler.draining) == (NodeState.HEALTHY, False, set())
    with pytest.raises(ValueError, match="HEALTHY"):
        release_node(A, "once more", it.ports)


def test_a_spare_of_a_workflow_that_lives_is_its_own_to_let_go() -> None:
    it = claimed_by(IncidentState.WAITING)

    release_node(A, "repaired", it.ports)

    assert it.node(C).open_incident == it.id


def test_a_node_is_not_given_back_under_a_recovery_that_is_at_work_on_it() -> None:
    it = Incident()
    it.isolate()
    it.request()  # the reboot is decided

    with pytest.raises(ValueError, match=f"{it.id} is at work on {A}; wait until it has ended"):
        release_node(A, "looks fine to me", it.ports)

    assert it.node().state is NodeState.ISOLATED
    assert list(it.ports.pools.holders("demo")) == [A]
