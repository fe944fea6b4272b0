"""The queries of nodeheal.api: what a screen or a program reads of the fleet."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.adapters.memory.fleet_index import MemoryFleetIndex
from nodeheal.adapters.memory.stores import MemoryNodeStore
from nodeheal.api import queries
from nodeheal.api.views import Todo, TodoKind
from nodeheal.contract.vocabulary import ActKind, Availability, NodeState, Verdict
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.ports import Ports
from nodeheal.services.recovery.pool_size import LARGE_POOL
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, xid
from tests.support.fake_cluster import BROKEN, FakeCluster


def todo_of(cluster: FakeCluster) -> list[Todo]:
    return list(queries.fleet(["demo"], cluster.ports, cluster.policy).todo)


def test_nothing_waits_in_a_well_fleet() -> None:
    assert todo_of(FakeCluster()) == []


def test_an_incident_that_was_handed_over_waits_to_be_closed() -> None:
    cluster = FakeCluster()
    cluster.diagnoses[BROKEN] = Verdict.FAILED
    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))

    [todo] = todo_of(cluster)

    assert (todo.kind, todo.subject, todo.node) == (TodoKind.TAKE_OVER, cluster.incident_id, BROKEN)
    assert todo.acts == (ActKind.RELEASE, ActKind.RETIRE)  # either closes it
    assert todo.since == cluster.ports.incidents.incident(cluster.incident_id).opened_at


def test_an_open_breaker_waits_to_be_reset_and_says_why_it_opened() -> None:
    cluster = FakeCluster()
    opened_at = cluster.clock()
    tripped = cluster.ports.pools.get("demo").tripped("9 of 10 nodes failed within a minute", opened_at)
    cluster.ports.pools.save(tripped)

    [todo] = todo_of(cluster)

    assert (todo.kind, todo.subject, todo.node) == (TodoKind.RESET_BREAKER, "demo", None)
    assert (todo.since, todo.why, todo.acts) == (opened_at, tripped.breaker_why, (ActKind.RESET_BREAKER,))


@pytest.mark.parametrize("breaker", [True, False])
def test_a_view_is_its_own_json(breaker: bool) -> None:
    cluster = FakeCluster()
    if breaker:
        pool = replace(cluster.ports.pools.get("demo"), breaker_opened_at=cluster.clock(), breaker_why="nine failed")
        cluster.ports.pools.save(pool)
    cluster.clock.advance(timedelta(milliseconds=1_234).total_seconds())

    view = queries.fleet(["demo"], cluster.ports, cluster.policy)
    data = view.model_dump(mode="json")

    assert data["at"] == view.at.isoformat(timespec="seconds")
    assert data["pools"][0]["breaker_why"] == ("nine failed" if breaker else None)
    assert [todo["acts"] for todo in data["todo"]] == ([["RESET_BREAKER"]] if breaker else [])


class CountingIndex(MemoryFleetIndex):
    """Counts the nodes that are read."""

    nodes_read = 0

    def liveness_page(self, pool: str, after: str, limit: int) -> tuple[Sequence[NodeLiveness], str]:
        rows, after = super().liveness_page(pool, after, limit)
        self.nodes_read += len(rows)
        return rows, after


class UnlistedNodes(MemoryNodeStore):
    """Lists no pool."""

    def in_pool(self, pool: str) -> Sequence[Node]:
        raise AssertionError(f"all nodes of {pool} were read")


def large_fleet(clock: FrozenClock, size: int) -> tuple[Ports, CountingIndex]:
    """Nodes of many kinds, in stores that know what was read of them."""
    kinds: list[dict[str, object]] = [
        {},
        {"job_id": "llama"},
        {"state": NodeState.QUARANTINED, "open_incident": "inc-1"},
        {"state": NodeState.PROBATION, "probation_until": NOW + timedelta(hours=1)},
        {"state": NodeState.PROBATION, "probation_until": NOW, "is_spare": True},
        {"state": NodeState.RETIRED, "is_spare": True},
        {"state": NodeState.SUSPECT},
    ]
    ports = memory_ports(clock)
    nodes = [node(f"mi-{at:06}", last_seen=clock.now, **kinds[at % len(kinds)]) for at in range(size)]
    stored = MemoryNodeStore({each.node_id: each for each in nodes})
    index = CountingIndex(stored, ports.incidents)  # type: ignore[arg-type]
    return replace(ports, nodes=UnlistedNodes(stored.nodes), fleet_index=index), index


def test_of_a_large_pool_a_screen_reads_a_page_and_shows_the_count_of_the_sweep(
    clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports, index = large_fleet(clock, 5 * LARGE_POOL)
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_RUN", 2 * LARGE_POOL)
    for _ in range(3):
        sweep(ports, ACT)
    index.nodes_read = 0
    clock.advance(40)

    row = queries.pool("demo", Pauses(), ports, ACT)
    view = queries.fleet(["demo"], ports, ACT)

    assert index.nodes_read == 2 * LARGE_POOL  # a page for each query
    assert row.counted_at == NOW
    assert view.pools == (row,)
    monkeypatch.setattr("nodeheal.services.recovery.pool_size.LARGE_POOL", 10 * LARGE_POOL)
    assert row == queries.pool("demo", Pauses(), ports, ACT).model_copy(update={"counted_at": NOW})
    assert row.size == 5 * LARGE_POOL - row.nodes[NodeState.RETIRED]
    assert row.availability[Availability.QUARANTINED] == row.nodes[NodeState.QUARANTINED] > LARGE_POOL / 2


def test_a_large_pool_that_was_not_counted_yet_is_not_counted_for_a_screen(clock: FrozenClock) -> None:
    ports, index = large_fleet(clock, 2 * LARGE_POOL)

    row = queries.pool("demo", Pauses(), ports, ACT)

    assert (row.size, row.slots, row.nodes, row.availability, row.counted_at) == (None, None, {}, {}, None)
    assert index.nodes_read == LARGE_POOL


@pytest.mark.parametrize(("size", "is_counted"), [(LARGE_POOL - 1, True), (LARGE_POOL, False)])
def test_a_pool_that_fits_a_page_is_counted_now(clock: FrozenClock, size: int, is_counted: bool) -> None:
    ports, _ = large_fleet(clock, size)

    row = queries.pool("demo", Pauses(), ports, ACT)

    assert (sum(row.nodes.values()) == size, row.counted_at) == (is_counted, None)
