"""The slots of a pool: which ones the sweep gives back, and what happens to an incident that stands in line."""

from dataclasses import replace

from nodeheal.contract.vocabulary import IncidentState, NodeState, Outcome, Verdict
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery.wait_for_news import wait_for_news
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, xid
from tests.support.incident_steps import B, Incident
from tests.support.step_functions import isolate_node


def waits_in_line(it: Incident) -> None:
    """Another incident's node has the only slot."""
    isolate_node(it.request(), it.ports, it.policy)
    assert it.resumed().outcome is Outcome.REFUSED
    wait_for_news(it.request(), it.ports)
    assert it.is_waiting()


def test_a_slot_of_a_node_that_its_broken_workflow_never_isolated_is_found_by_the_sweep() -> None:
    it = Incident()
    ingest(xid(79, node_id=B, instance_id=B, event_id="b"), it.ports, it.policy)
    it.ports.pools.claim("demo", B, 1)  # the call died right after: the workflow paged, and left it to a human
    broke = it.ports.incidents.history(str(it.node(B).open_incident)).incident
    it.ports.incidents.finish(replace(broke, state=IncidentState.ESCALATED))
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.resumed().outcome is Outcome.DONE


def test_the_sweep_leaves_the_slot_of_a_node_that_is_just_being_isolated() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    ingest(xid(79, node_id=B, instance_id=B, event_id="b"), it.ports, it.policy)
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.is_waiting()
    assert list(it.ports.pools.holders("demo")) == [B]


def test_the_sweep_leaves_the_slot_of_a_node_that_is_out_of_service() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.is_waiting()


def test_a_fault_that_is_repeated_while_its_incident_stands_in_line_does_not_use_its_turns_up() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    it.clock.advance(60)
    ingest(xid(79, event_id="again", observed_at=it.clock()), it.ports, it.policy)

    assert it.is_waiting()


def test_good_news_while_its_incident_stands_in_line_does_not_use_its_turns_up() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    ingest(xid(63, verdict=Verdict.OK), it.ports, it.policy)

    assert it.is_waiting()


def test_another_fault_while_its_incident_stands_in_line_is_news() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    it.clock.advance(60)
    ingest(xid(74, observed_at=it.clock()), it.ports, it.policy)

    assert not it.is_waiting()
