"""How many nodes a pool has. The sweep counts, because listing 10,000 takes a second: too long for an isolation."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.node import ABSENT
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports

# A sweep runs every minute. A count older than this shows that it does not run.
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


@dataclass(frozen=True)
class Slots:
    """How many nodes may hold a slot of a pool's disruption budget now. As text, in tables: `2`, or `2+1` with `extra`.

    `extra`: more slots while nodes are quarantined, as `quarantine_percent` of the budget says.
    """

    budget: int
    extra: int = 0

    @property
    def total(self) -> int:
        """All slots."""
        return self.budget + self.extra

    def __str__(self) -> str:
        return f"{self.budget}+{self.extra}" if self.extra else str(self.budget)

    def taken(self, held: int) -> str:
        """How many of them are taken, in words, and why there are more than the budget has."""
        more = f", {self.extra} of them only while nodes are quarantined" if self.extra else ""
        return f"{held} of {self.total} slots are taken{more}"


def slots_of(name: str, ports: Ports, policy: RecoveryPolicy) -> Slots:
    """The pool's slots now. Quarantined nodes are counted only where the budget alone is full."""
    budget = policy.pool(name).budget
    slots, holders = budget.slots(size_of(ports.pools.get(name), ports)), ports.pools.holders(name)
    if len(holders) < slots:
        return Slots(slots)
    nodes = (ports.nodes.get(holder) for holder in holders)
    quarantined = sum(node is not None and node.state is NodeState.QUARANTINED for node in nodes)
    return Slots(slots, budget.uncounted(slots, quarantined))


def note_size(name: str, nodes: int, ports: Ports) -> None:
    """Stores the count. A concurrent write of the pool wins, because the next count is a minute away."""
    pool, now = ports.pools.get(name), ports.clock()
    if pool.counted_at is None or pool.nodes != nodes or now - pool.counted_at >= _RENEWED_AFTER:
        ports.pools.save(replace(pool, nodes=nodes, counted_at=now))
