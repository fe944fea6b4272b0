"""What one node sends is taken up to a number a minute, boots and answers as well."""

import pytest

from nodeheal.contract.health_event import HealthEvent, NodeBooted
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import Ingested, _note_flood, ingest
from nodeheal.services.intake.node_rates import ANSWERS_A_MINUTE, REPORTS_A_MINUTE, Rate
from nodeheal.services.intake.wakeup import on_node_booted
from tests.support.builders import ACT, node, xid
from tests.support.incident_steps import A, C, Incident


def sends_boots(it: Incident, name: str, number: int) -> None:
    fact = it._fact("boot-1", name)
    for _ in range(number):
        on_node_booted(NodeBooted(**fact, booted_at=it.clock(), address="10.0.0.7", accelerators=8), it.ports)


def test_boots_and_answers_beyond_the_limit_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """S6: what a node sends to wakeup had no bound."""
    it = Incident()
    sends_boots(it, C, ANSWERS_A_MINUTE)

    on_node_booted(NodeBooted(**it._fact("boot-2", C), booted_at=it.clock(), address="", accelerators=8), it.ports)
    refused = it.node(C).boot_id
    sends_boots(it, C, 5)
    it.boots("boot-2", C)  # a minute later

    assert (refused, it.node(C).boot_id) == ("boot-1", "boot-2")
    assert [r.message for r in caplog.records] == ["more boots and answers than are taken of one node"]


def test_one_node_uses_up_no_other_nodes_number() -> None:
    it = Incident()

    sends_boots(it, C, ANSWERS_A_MINUTE + 1)
    on_node_booted(NodeBooted(**it._fact("boot-2", A), booted_at=it.clock(), address="", accelerators=8), it.ports)

    assert it.node(A).boot_id == "boot-2"


def test_a_node_that_reports_too_much_can_still_answer() -> None:
    it = Incident()
    flood = [
        xid(92, node_id=C, event_id=f"flood-{one}", component=f"gpu-{one}", observed_at=it.clock())
        for one in range(REPORTS_A_MINUTE + 1)
    ]
    became = [ingest(event, it.ports, ACT) for event in flood]
    on_node_booted(NodeBooted(**it._fact("boot-2", C), booted_at=it.clock(), address="", accelerators=8), it.ports)

    assert became[-1] is Ingested.TOO_MANY
    assert it.node(C).boot_id == "boot-2"


@pytest.mark.parametrize(("is_heartbeat", "over", "is_kept"), [(False, 1, True), (False, 2, False), (True, 1, False)])
def test_of_a_flood_of_reports_the_first_that_is_not_taken_is_kept(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, is_heartbeat: bool, over: int, is_kept: bool
) -> None:
    kept: list[HealthEvent] = []
    monkeypatch.setattr(three_nodes.nodes, "record", lambda event, *_: kept.append(event))
    event = xid(79, family=Family.heartbeat, verdict=Verdict.OK, code="alive") if is_heartbeat else xid(79)
    assert event.is_heartbeat is is_heartbeat

    _note_flood(event, node(A), Rate(120 + over, 120), three_nodes)

    assert bool(kept) is is_kept
