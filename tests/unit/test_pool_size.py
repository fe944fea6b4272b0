"""How many nodes a pool has: counted by the sweep, believed while that is fresh."""

from datetime import timedelta

import pytest

from nodeheal.contract.vocabulary import NodeState
from nodeheal.ports import Ports
from nodeheal.services.recovery.pool_size import GOOD_FOR, note_size, size_of
from nodeheal.services.sweep import sweep
from tests.unit.builders import ACT, NOW, FrozenClock, memory_ports, node

POOL = "demo"


@pytest.fixture
def ports(clock: FrozenClock) -> Ports:
    ports = memory_ports(clock)
    for number in range(3):
        ports.nodes.save(node(f"mi-{number}", last_seen=NOW))
    return ports


def size(ports: Ports) -> int:
    return size_of(ports.pools.get(POOL), ports)


def test_a_pool_that_nobody_has_counted_is_counted_now(ports: Ports) -> None:
    assert size(ports) == 3


@pytest.mark.parametrize("state", [NodeState.RETIRED, NodeState.ENROLLED])
@pytest.mark.parametrize("is_swept", [True, False])
def test_nodes_that_are_gone_or_not_there_yet_are_not_of_the_pool(
    ports: Ports, state: NodeState, is_swept: bool
) -> None:
    ports.nodes.save(node("mi-absent", state=state))
    if is_swept:
        sweep(ports, ACT)

    assert size(ports) == 3


def test_what_the_sweep_has_counted_is_believed(ports: Ports) -> None:
    sweep(ports, ACT)
    ports.nodes.save(node("mi-late"))

    assert size(ports) == 3
    assert ports.pools.get(POOL).counted_at == NOW


def test_the_next_sweep_counts_again(ports: Ports) -> None:
    sweep(ports, ACT)
    ports.nodes.save(node("mi-late", last_seen=NOW))
    sweep(ports, ACT)

    assert ports.pools.get(POOL).nodes == 4


def test_an_old_count_is_not_believed(ports: Ports, clock: FrozenClock) -> None:
    note_size(POOL, 1_000, ports)
    clock.now = NOW + GOOD_FOR

    assert size(ports) == 3


def test_a_count_is_believed_until_it_is_old(ports: Ports, clock: FrozenClock) -> None:
    note_size(POOL, 1_000, ports)
    clock.now = NOW + GOOD_FOR - timedelta(seconds=1)

    assert size(ports) == 1_000


def test_the_same_count_is_renewed_before_it_is_old_and_not_every_minute(ports: Ports, clock: FrozenClock) -> None:
    note_size(POOL, 3, ports)
    clock.now = NOW + timedelta(minutes=1)
    note_size(POOL, 3, ports)
    written_at = ports.pools.get(POOL).counted_at
    clock.now = NOW + GOOD_FOR / 2
    note_size(POOL, 3, ports)

    assert written_at == NOW
    assert ports.pools.get(POOL).counted_at == clock.now


def test_counting_leaves_the_guardrails_as_they_are(ports: Ports) -> None:
    ports.pools.save(ports.pools.get(POOL).tripped("a storm", NOW))

    note_size(POOL, 3, ports)

    pool = ports.pools.get(POOL)
    assert (pool.breaker_why, pool.nodes) == ("a storm", 3)


def test_a_pool_that_takes_several_sweeps_is_not_taken_for_a_part_of_it(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_RUN", 2)
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_PAGE", 2)

    for _ in range(2):
        sweep(ports, ACT)

    assert ports.pools.get(POOL).counted_at is None
    assert size(ports) == 3


def test_a_pool_without_nodes_is_counted_too(ports: Ports) -> None:
    note_size("empty", 0, ports)

    assert ports.pools.get("empty").counted_at == NOW
