"""What an event changes of its node's record, and which nodes enroll by their tag."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports
from nodeheal.services.intake import ingest, upsert_node
from nodeheal.services.intake.ingest import Ingested
from nodeheal.services.saving import node_of
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, xid
from tests.support.incident_steps import A
from tests.support.observed_operations import unwanted
from tests.support.three_nodes import booted


def test_what_aws_says_of_a_node_is_no_word_of_its_agent(three_nodes: Ports) -> None:
    before = node_of(A, three_nodes)

    ingest.ingest(xid(79, node_id=A, source="aws.health", agent_version="9.9.9"), three_nodes, ACT)

    after = node_of(A, three_nodes)
    assert (after.agent_version, after.agent_since) == (before.agent_version, before.agent_since)


@pytest.mark.parametrize(
    ("state", "became"),
    [
        (None, Ingested.UNENROLLED),
        (NodeState.UNENROLLED, Ingested.UNENROLLED),
        (NodeState.ENROLLED, Ingested.HISTORY),
    ],
)
def test_what_aws_says_of_a_node_enrolls_it_not(state: NodeState | None, became: Ingested) -> None:
    ports = memory_ports(FrozenClock())
    if state is not None:
        ports.nodes.save(node(A, state=state))

    assert ingest.ingest(xid(79, node_id=A, source="aws.health"), ports, ACT) is became
    known = ports.nodes.get(A)
    assert (known.state if known is not None else None) is state


def test_a_node_that_was_asked_about_just_now_is_not_asked_about_again(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(three_nodes.enrolment_tags, "pool_of", unwanted)
    known = node(A, state=NodeState.UNENROLLED, last_seen=NOW)

    assert upsert_node._enrolled_by_tag(booted(), known, three_nodes) is None


def test_a_node_that_is_tagged_later_is_announced_before_it_is_heard(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(node_of(A, three_nodes), state=NodeState.UNENROLLED, last_seen=NOW - timedelta(days=1))
    monkeypatch.setattr(three_nodes.enrolment_tags, "pool_of", lambda *_: "gold")
    saved: list[NodeState] = []
    save = three_nodes.nodes.save

    def seen(one: Node) -> bool:
        saved.append(one.state)
        return save(one)

    monkeypatch.setattr(three_nodes.nodes, "save", seen)

    found = upsert_node._enrolled_by_tag(booted(), known, three_nodes)

    assert saved == [NodeState.ENROLLED]
    assert found is not None and (found.pool, found.state) == ("gold", NodeState.HEALTHY)
