"""How many nodes a pool has: counted by the sweep, believed while that is fresh."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.names import DRAIN, OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Availability, NodeState
from nodeheal.domain.fleet.pool import AcceleratorCount, Census, RunningJobs
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.ports import Ports
from nodeheal.ports.storage import SweepCursor
from nodeheal.services.recovery.pool_size import (
    GOOD_FOR,
    census_of,
    last_running_jobs,
    note_running_jobs,
    note_size,
    size_of,
)
from nodeheal.services.saving import change_node
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_node, xid

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


@pytest.mark.parametrize(("age", "expected"), [(GOOD_FOR - timedelta(seconds=1), 1_000), (GOOD_FOR, 3)])
def test_a_count_is_believed_until_it_is_old(ports: Ports, clock: FrozenClock, age: timedelta, expected: int) -> None:
    note_size(POOL, 1_000, ports)
    clock.now = NOW + age

    assert size(ports) == expected


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


def test_a_pool_that_takes_several_sweeps_is_counted_at_its_end(
    ports: Ports, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_RUN", 2)
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_PAGE", 2)
    known = []

    for _ in range(4):
        sweep(ports, ACT)
        known.append((ports.pools.get(POOL).nodes, ports.pools.get(POOL).counted_at))
        clock.now += timedelta(minutes=1)
        for number in range(3):
            change_node(f"mi-{number}", ports, lambda known: replace(known, last_seen=clock.now))

    second = NOW + timedelta(minutes=1)
    assert known == [(0, None), (3, second), (3, second), (3, second)]
    assert ports.fleet_index.cursor() == SweepCursor(POOL)


@pytest.mark.parametrize("has_counted", [True, False])
def test_only_a_part_of_a_pool_whose_beginning_was_not_counted_is_no_count(ports: Ports, has_counted: bool) -> None:
    counted = Census({NodeState.HEALTHY: 2}, {Availability.FREE: 2}) if has_counted else None
    ports.fleet_index.save_cursor(SweepCursor(POOL, "mi-1", counted=counted))

    done = sweep(ports, ACT)

    assert done.nodes == 1
    assert done.counted == ({POOL: 3} if has_counted else {})


def test_a_census_is_kept_of_large_pools_only(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(ports, ACT)
    small = ports.pools.get(POOL).census
    monkeypatch.setattr("nodeheal.services.sweep.LARGE_POOL", 3)
    sweep(ports, ACT)
    large = ports.pools.get(POOL).census
    monkeypatch.undo()
    sweep(ports, ACT)

    assert small is None
    assert large == Census({NodeState.HEALTHY: 3}, {Availability.FREE: 3})
    assert ports.pools.get(POOL).census is None


def test_a_drain_of_many_incidents_is_looked_up_as_far_as_there_is_time_for(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        event = xid(node_id=f"mi-{number}", code=OPERATOR_REQUEST, subcode=DRAIN)
        incident = Incident(incident_id_of(event), event.node_id, POOL, event, NOW, "policy-1")
        known = replace(stored_node(ports, event.node_id), open_incident=incident.incident_id)
        assert ports.incidents.open(incident, known)
    nodes, _ = ports.fleet_index.liveness_page(POOL, "", 10)
    exact = census_of(nodes, ports)
    monkeypatch.setattr("nodeheal.services.recovery.pool_size._INCIDENTS_LOOKED_UP", 1)

    rough = census_of(nodes, ports)

    assert exact.availability == {Availability.DRAINING: 2, Availability.FREE: 1}
    assert rough.availability == {Availability.DRAINING: 1, Availability.FREE: 1, Availability.SUSPECT: 1}


def test_a_pool_without_nodes_is_counted_too(ports: Ports) -> None:
    note_size("empty", 0, ports)

    assert ports.pools.get("empty").counted_at == NOW


@pytest.mark.parametrize(
    ("state", "counted"),
    [
        (NodeState.HEALTHY, AcceleratorCount(8, 8)),
        (NodeState.PROBATION, AcceleratorCount(8, 8)),
        (NodeState.SUSPECT, AcceleratorCount(8, 0)),
        (NodeState.RECOVERING, AcceleratorCount(8, 0)),
        (NodeState.QUARANTINED, AcceleratorCount(8, 0)),
        (NodeState.ENROLLED, AcceleratorCount()),
        (NodeState.RETIRED, AcceleratorCount()),
    ],
)
def test_accelerators_are_in_service_while_nothing_holds_their_node(
    clock: FrozenClock, state: NodeState, counted: AcceleratorCount
) -> None:
    ports = memory_ports(clock)
    ports.nodes.save(node("mi-0", state=state, accelerators=8))

    assert sweep(ports, ACT).accelerators == {POOL: counted}


def test_the_accelerators_of_a_large_pool_are_summed_up_over_its_parts(
    clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = memory_ports(clock)
    for number, state in enumerate((NodeState.HEALTHY, NodeState.HEALTHY, NodeState.QUARANTINED)):
        ports.nodes.save(node(f"mi-{number}", accelerators=8, state=state))
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_RUN", 2)
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_PAGE", 2)

    runs = [sweep(ports, ACT).accelerators for _ in range(2)]

    assert runs == [{}, {POOL: AcceleratorCount(24, 16)}]


def test_running_jobs_are_believed_for_as_long_as_a_count_of_nodes(ports: Ports, clock: FrozenClock) -> None:
    jobs = RunningJobs(1, 0, 16, 16)
    note_running_jobs(POOL, jobs, ports)
    clock.advance(60)
    note_running_jobs(POOL, jobs, ports)
    written = ports.pools.get(POOL)
    fresh = last_running_jobs(written, ports)
    clock.advance(GOOD_FOR.total_seconds() - 60)

    assert (written.version, fresh) == (1, jobs)
    assert last_running_jobs(written, ports) is None
    assert last_running_jobs(ports.pools.get("other"), ports) is None


def test_running_jobs_that_have_changed_are_written_at_once(ports: Ports, clock: FrozenClock) -> None:
    note_running_jobs(POOL, RunningJobs(1, 0, 16, 16), ports)
    note_running_jobs(POOL, RunningJobs(1, 1, 16, 0), ports)

    assert ports.pools.get(POOL).running_jobs == RunningJobs(1, 1, 16, 0)
