"""How many nodes a pool has. The sweep counts, because listing 10,000 takes a second: too long for an isolation."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.availability import availability, count_accelerators
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.fleet.node import ABSENT
from nodeheal.domain.fleet.pool import Census, Pool, RunningJobs, Slots, Word
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.operators.node_availability import open_incident_of, starts_jobs

# A sweep runs every minute. A count older than this shows that it does not run.
GOOD_FOR = timedelta(minutes=10)
_RENEWED_AFTER = GOOD_FOR / 2
# A pool with fewer nodes is counted for each screen: that is one read. Of a larger one the sweep keeps a census.
LARGE_POOL = 1_000
# Each is a read, and the sweep has seconds. Nodes with further incidents count as if none of these were a drain.
_INCIDENTS_LOOKED_UP = LARGE_POOL


def size_of(pool: Pool, ports: Ports) -> int:
    """As last counted; counted now where that is too long ago."""
    if pool.counted_at is not None and ports.clock() - pool.counted_at < GOOD_FOR:
        return pool.nodes
    return count(node.state for node in ports.nodes.in_pool(pool.name))


def count(states: Iterable[NodeState]) -> int:
    """How many of these nodes there are to be disrupted."""
    return sum(state not in ABSENT for state in states)


def slots_of(name: str, ports: Ports, policy: RecoveryPolicy, size: int | None = None) -> Slots:
    """The pool's slots now. Quarantined nodes are counted only where the budget alone is full. `size`: where the caller
    knows it.
    """
    budget = policy.pool(name).budget
    slots = budget.slots(size_of(ports.pools.get(name), ports) if size is None else size)
    holders = ports.pools.holders(name)
    if len(holders) < slots:
        return Slots(slots)
    nodes = (ports.nodes.get(holder) for holder in holders)
    quarantined = sum(node is not None and node.state is NodeState.QUARANTINED for node in nodes)
    return Slots(slots, budget.uncounted(slots, quarantined))


def census_of(nodes: Sequence[NodeLiveness], ports: Ports) -> Census:
    """Counts these nodes."""
    now = ports.clock()
    troubled = islice((node for node in nodes if node.open_incident is not None), _INCIDENTS_LOOKED_UP)
    incidents = {node.node_id: open_incident_of(node, ports) for node in troubled}
    return Census(
        states=_counted(NodeState.HEALTHY if node.is_past_probation(now) else node.state for node in nodes),
        availability=_counted(
            availability(node, incidents.get(node.node_id), now, starts_jobs=starts_jobs(node, ports)) for node in nodes
        ),
        spares=sum(node.is_spare and node.state not in ABSENT for node in nodes),
        accelerators=count_accelerators(nodes, now),
    )


def last_census(pool: Pool, ports: Ports) -> tuple[Census | None, datetime | None]:
    """The pool as it is now, or, of a large one, as the sweep counted it last, and when; None where it has not yet."""
    nodes, after = ports.fleet_index.liveness_page(pool.name, "", LARGE_POOL)
    if not after:
        return census_of(nodes, ports), None
    return pool.census, pool.counted_at if pool.census is not None else None


def note_size(name: str, nodes: int, ports: Ports, census: Census | None = None) -> None:
    """Stores the count. A concurrent write of the pool wins, because the next count is a minute away."""
    pool, now = ports.pools.get(name), ports.clock()
    counted = replace(pool, nodes=nodes, census=census)
    if pool.counted_at is None or pool != counted or now - pool.counted_at >= _RENEWED_AFTER:
        ports.pools.save(replace(counted, counted_at=now))


def note_running_jobs(name: str, jobs: RunningJobs, ports: Ports) -> None:
    """Stores what a look at the pool's jobs has come to, as `note_size` does: no screen then reads every job."""
    pool, now = ports.pools.get(name), ports.clock()
    counted_at = pool.jobs_counted_at
    if pool.running_jobs != jobs or counted_at is None or now - counted_at >= _RENEWED_AFTER:
        ports.pools.save(replace(pool, running_jobs=jobs, jobs_counted_at=now))


def last_running_jobs(pool: Pool, ports: Ports) -> RunningJobs | None:
    """The pool's running jobs as they were last counted; None: that is too long ago."""
    is_good = pool.jobs_counted_at is not None and ports.clock() - pool.jobs_counted_at < GOOD_FOR
    return pool.running_jobs if is_good else None


def _counted(words: Iterable[Word]) -> dict[Word, int]:
    return dict(Counter(sorted(words)))
