"""What is looked at right before a call says no where it should: no story that ends well makes such a call."""

from dataclasses import replace

from nodeheal.contract.vocabulary import NodeState
from nodeheal.ports import Ports
from tests.unit.builders import ACT, FrozenClock, memory_ports, node
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.invariants import watch


def _with(state: NodeState) -> Ports:
    ports = memory_ports(FrozenClock())
    ports.nodes.save(replace(node(BROKEN), state=state))
    ports.pools.claim("demo", BROKEN, 1)
    return ports


def test_a_node_is_switched_on_only_when_it_is_written_that_it_is_in_service() -> None:
    out, back = (_with(state) for state in (NodeState.RECOVERING, NodeState.PROBATION))

    assert watch("scheduler.undrain", (BROKEN,), out, ACT) == [
        f"scheduler.undrain: {BROKEN} is RECOVERING, and switched on"
    ]
    assert watch("scheduler.undrain", (BROKEN,), back, ACT) == []


def test_a_slot_is_given_back_only_when_its_node_is_in_service() -> None:
    out, back = (_with(state) for state in (NodeState.QUARANTINED, NodeState.RETIRED))

    assert watch("pools.release", ("demo", BROKEN), out, ACT) == [
        f"pools.release: the slot of {BROKEN}, which is QUARANTINED"
    ]
    assert watch("pools.release", ("demo", BROKEN), back, ACT) == []
    assert watch("pools.release", ("demo#replacements", BROKEN), out, ACT) == []
