"""Guardrails that operators set and reset: the breaker of a pool, pauses of pools and nodes."""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.vocabulary import Awaited
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pool import Pool
from nodeheal.ports import Ports
from nodeheal.services.recovery.queue import wake_all
from nodeheal.services.saving import change_pool, node_of
from nodeheal.services.steps import save_node


def trip_breaker(pool: str, why: str, ports: Ports, seen: Pool | None = None) -> Pool:
    """Open the pool's breaker; the pool as it is then. One that is open stays as it is.

    `seen`: the pool that the reason was found in. A human who has reset the breaker since has looked at that already.
    """

    def trip(known: Pool) -> Pool:
        is_reset_since = seen is not None and known.breaker_reset_at != seen.breaker_reset_at
        return known if is_reset_since else known.tripped(why, ports.clock())

    return change_pool(pool, ports, trip)


def reset_breaker(pool: str, why: str, ports: Ports) -> int:
    """Close it, and let what waits decide again; how many incidents did. What is stale by now is dropped by them.

    Safe to repeat: it continues a call that crashed before it woke them. Raises ValueError for a breaker that is
    closed and that no incident waits for.
    """
    was_open = ports.pools.get(pool).is_tripped
    if was_open:
        change_pool(pool, ports, lambda known: known.reset(why, ports.clock()))
    woken = wake_all(pool, Awaited.BREAKER, ports)
    if not (was_open or woken):
        raise ValueError(f"the breaker of pool {pool} is not open")
    return woken


def pause_pool(pool: str, seconds: int, why: str, ports: Ports) -> Pool:
    """Touch nothing in the pool for so long. 0 ends a pause; `why` is kept then, too."""
    until = ports.clock() + timedelta(seconds=seconds) if seconds else None
    return change_pool(pool, ports, lambda known: replace(known, paused_until=until, paused_why=why))


def pause_node(node_id: str, seconds: int, why: str, ports: Ports) -> Node:
    """The same for one node. Raises NotFound."""
    until = ports.clock() + timedelta(seconds=seconds) if seconds else None
    return save_node(ports, node_of(node_id, ports), paused_until=until, paused_why=why)
