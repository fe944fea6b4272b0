"""What was handed to a human is closed by one, in their name."""

from dataclasses import replace

import pytest

from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.operators.close_incident import _what_stays_down, close_incident
from nodeheal.services.recovery.end_incident import end_incident
from tests.support.builders import ACT, NOW, xid
from tests.support.incident_steps import A, C
from tests.support.incident_steps import Incident as SteppedIncident


def handed_over() -> SteppedIncident:
    """A fault that nobody knows: a human has it, and the node is in service."""
    it = SteppedIncident(code=999)
    end_incident(it.request(), it.ports, ACT)
    return it


def broken_off(state: NodeState) -> SteppedIncident:
    """Its workflow broke: the incident has no ending, and lets go of nothing."""
    it = SteppedIncident()
    broken = replace(it.ports.incidents.history(it.id).incident, state=IncidentState.ESCALATED)
    it.ports.incidents.finish(broken)
    it.ports.nodes.save(replace(it.node(), state=state))
    it.ports.nodes.save(replace(it.node(C), open_incident=it.id))
    return it


def state_of(it: SteppedIncident) -> IncidentState:
    return it.ports.incidents.history(it.id).incident.state


def told(it: SteppedIncident) -> list[str]:
    return [entry.text for entry in it.ports.incidents.history(it.id).timeline if "closed by hand" in entry.text]


def test_a_human_closes_what_was_handed_over_and_their_word_is_on_record() -> None:
    it = handed_over()
    assert state_of(it) is IncidentState.ESCALATED

    assert close_incident(it.id, "ada: a message of the new driver", it.ports)

    assert state_of(it) is IncidentState.CLOSED
    assert told(it) == ["closed by hand: ada: a message of the new driver"]


def test_closing_it_again_changes_nothing() -> None:
    it = handed_over()
    close_incident(it.id, "ada: harmless", it.ports)

    assert not close_incident(it.id, "bob: me too", it.ports)

    assert told(it) == ["closed by hand: ada: harmless"]


def test_one_that_is_under_way_is_not_closed() -> None:
    it = SteppedIncident()

    with pytest.raises(ValueError, match="is OPEN, it has not ended"):
        close_incident(it.id, "ada: enough", it.ports)


def test_one_whose_node_is_out_of_service_is_closed_by_giving_the_node_back() -> None:
    it = broken_off(NodeState.QUARANTINED)

    with pytest.raises(ValueError, match=f"nodes release {A} --why …` or `nodeheal nodes retire {A} --why …`"):
        close_incident(it.id, "ada: enough", it.ports)

    assert (state_of(it), it.node(C).open_incident) == (IncidentState.ESCALATED, it.id)


def test_what_a_broken_workflow_held_is_free_and_the_next_fault_is_news() -> None:
    it = broken_off(NodeState.HEALTHY)

    close_incident(it.id, "ada: I looked at both", it.ports)

    assert (it.node().open_incident, it.node(C).open_incident) == (None, None)
    assert ingest(xid(48, event_id="next"), it.ports, ACT) is Ingested.OPENED


def test_a_node_that_another_incident_has_taken_stays_with_that() -> None:
    it = broken_off(NodeState.HEALTHY)
    it.ports.nodes.save(replace(it.node(), state=NodeState.ISOLATED, open_incident="inc-next"))

    close_incident(it.id, "ada: the old one is over", it.ports)

    assert (state_of(it), it.node().open_incident) == (IncidentState.CLOSED, "inc-next")


def test_a_call_that_died_before_it_was_closed_is_made_up_for_by_the_next() -> None:
    it = broken_off(NodeState.HEALTHY)
    save = it.ports.nodes.save

    def never(node: Node) -> bool:
        return False

    it.ports.nodes.save = never  # type: ignore[method-assign]
    with pytest.raises(NotAccepted, match="is not closed, try again"):
        close_incident(it.id, "ada: now", it.ports)
    it.ports.nodes.save = save  # type: ignore[method-assign]

    assert close_incident(it.id, "ada: again", it.ports)
    assert state_of(it) is IncidentState.CLOSED


@pytest.mark.parametrize(("state", "is_told"), [(IncidentState.ESCALATED, True), (IncidentState.OPEN, False)])
def test_what_stays_down_is_told_where_no_workflow_starts_it_again(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, state: IncidentState, is_told: bool
) -> None:
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", state=state)
    monkeypatch.setattr("nodeheal.services.operators.close_incident.tasks_not_restarted", lambda _: ["eval:3"])
    monkeypatch.setattr(three_nodes.incidents, "history", lambda _: History(incident, (incident.root,), ()))

    assert ("eval:3" in _what_stays_down(incident, three_nodes)) is is_told
