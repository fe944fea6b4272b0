"""Quarantined nodes leave a pool's budget room to heal others, and never without a bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.pool import Slots
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode, PoolPolicy
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports import Ports
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.pool_size import slots_of
from tests.support.builders import ACT, memory_ports, node, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster
from tests.support.incident_steps import Incident
from tests.support.queues import stands


def quarantined(ports: Ports, *names: str) -> None:
    for name in names:
        ports.nodes.save(node(name, state=NodeState.QUARANTINED))
        assert ports.pools.claim("demo", name, 99)


def policy(**budget: float) -> RecoveryPolicy:
    found = Budget.model_validate({"max_nodes": 1, "max_percent": 100, **budget})
    return ACT.model_copy(update={"default_pool": PoolPolicy(mode=Mode.act, budget=found)})


def test_a_quarantined_node_does_not_keep_the_pools_next_fault_waiting() -> None:
    """With the budget as it is by default: one node. Its slot was held until a human came."""
    it = FakeCluster(policy())
    it.reports(xid(54, node_id=SPARE, instance_id=SPARE, event_id="on-the-spare"))
    assert it.node(SPARE).state is NodeState.QUARANTINED

    it.reports(xid(79))

    assert it.node(BROKEN).state is NodeState.PROBATION
    told = [turn.decision.reason for turn in it.ports.incidents.history(incident_id_of(xid(79))).turns]
    assert not [reason for reason in told if "in line" in reason]


def test_the_second_quarantined_node_holds_the_slot() -> None:
    ports = memory_ports()
    quarantined(ports, SPARE)
    assert slots_of("demo", ports, policy()) == Slots(1, extra=1)
    quarantined(ports, PEER)

    assert slots_of("demo", ports, policy()) == Slots(1, extra=1)
    assert not ports.pools.claim("demo", BROKEN, slots_of("demo", ports, policy()).total)


def test_a_slot_that_a_quarantined_node_gave_back_is_shown_beside_the_budget() -> None:
    it = FakeCluster(policy())
    for name in (SPARE, PEER):
        it.reports(xid(54, node_id=name, instance_id=name, event_id=f"on-{name}"))

    it.reports(xid(79))

    told = [t.result.reason for t in it.ports.incidents.history(incident_id_of(xid(79))).turns if t.result]
    assert told[0].startswith(
        "the disruption budget of pool demo is full: 2 of 2 slots are taken, 1 of them only while"
    )


@pytest.mark.parametrize(
    ("slots", "percent", "uncounted"),
    [
        (1, 50, [0, 1, 1, 1]),
        (2, 50, [0, 0, 1, 1]),
        (4, 50, [0, 0, 0, 1, 2, 2, 2]),
        (4, 100, [0, 0, 0, 0, 0, 0]),
        (4, 0, [0, 1, 2, 3, 4, 4]),
        (0, 50, [0, 0, 0]),
    ],
)
def test_how_many_quarantined_nodes_count_for_no_slot(slots: int, percent: float, uncounted: list[int]) -> None:
    budget = Budget(quarantine_percent=percent)

    assert [budget.uncounted(slots, quarantined) for quarantined in range(len(uncounted))] == uncounted


@given(slots=st.integers(0, 50), percent=st.floats(0, 100), quarantined=st.integers(0, 200))
def test_so_many_nodes_are_out_of_service_at_the_very_most(slots: int, percent: float, quarantined: int) -> None:
    budget = Budget(quarantine_percent=percent)
    limit = slots + budget.uncounted(slots, quarantined)

    assert slots <= limit <= budget.most_out(slots) <= 2 * slots
    assert quarantined >= slots or limit - quarantined >= slots - int(slots * percent / 100)


def test_nobody_reads_the_nodes_while_slots_are_free() -> None:
    ports = memory_ports()
    ports.nodes.get = None  # type: ignore[assignment,method-assign]

    assert slots_of("demo", ports, policy(max_nodes=2, floor_nodes=2)) == Slots(2)


def test_an_incident_that_ends_with_a_quarantined_node_wakes_the_next_in_line() -> None:
    it = Incident(54, policy=policy())
    it.isolate()
    ending = it.request()
    stands(it.ports, "next")

    end_incident(ending, it.ports, policy())

    assert it.node().state is NodeState.QUARANTINED
    assert "token-next" in it.ports.workflows.resumed  # type: ignore[attr-defined]
