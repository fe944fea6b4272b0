"""How many nodes a pool has. Listing 10,000 takes a second, which nobody has who isolates one: the sweep counts."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.node import ABSENT
from nodeheal.domain.pool import Pool
from nodeheal.ports import Ports

# A sweep runs every minute. A count that none has renewed for so long says that it does not run.
GOOD_FOR = timedelta(minutes=10)
_RENEWED_AFTER = GOOD_FOR / 2


def size_of(pool: Pool, ports: Ports) -> int:
    """As last counted; counted now where that is too long ago."""
    if pool.counted_at is not None and ports.clock() - pool.counted_at < GOOD_FOR:
        return pool.nodes
    return count(node.state for node in ports.nodes.in_pool(pool.name))


def count(states: Iterable[NodeState]) -> int:
    """How many of these nodes there are to be disrupted."""
    return sum(state not in ABSENT for state in states)


def note_size(name: str, nodes: int, ports: Ports) -> None:
    """Keep what was counted. Who writes the pool meanwhile goes first: the next count is a minute away."""
    pool, now = ports.pools.get(name), ports.clock()
    if pool.counted_at is None or pool.nodes != nodes or now - pool.counted_at >= _RENEWED_AFTER:
        ports.pools.save(replace(pool, nodes=nodes, counted_at=now))
