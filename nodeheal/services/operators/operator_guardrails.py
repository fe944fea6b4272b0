"""Guardrails that operators set and reset: the breaker of a pool, pauses of pools and nodes."""

from datetime import timedelta

from nodeheal.contract import names
from nodeheal.contract.vocabulary import Awaited
from nodeheal.domain.fleet.pause import Pause
from nodeheal.domain.fleet.pool import Pool
from nodeheal.ports import Ports
from nodeheal.services.recovery.queue import wake_all
from nodeheal.services.saving import change_pool, node_of


def trip_breaker(pool: str, why: str, ports: Ports, basis: Pool | None = None) -> Pool:
    """Open the pool's breaker; the pool as it is then. One that is open stays as it is.

    `basis`: the pool that the reason was found in. A human who has reset the breaker since has looked at that already.
    """

    def trip(known: Pool) -> Pool:
        is_reset_since = basis is not None and known.breaker_reset_at != basis.breaker_reset_at
        return known if is_reset_since else known.tripped(why, ports.clock())

    return change_pool(pool, ports, trip)


def reset_breaker(pool: str, why: str, ports: Ports, by: str = "") -> int:
    """Close it, and let what waits decide again; how many incidents did. What is stale by now is dropped by them.

    Safe to repeat: it continues a call that crashed before it woke them. Raises ValueError for a breaker that is
    closed and that no incident waits for.
    """
    before = ports.pools.get(pool)
    if before.is_tripped:
        change_pool(pool, ports, lambda known: known.reset(why, ports.clock(), by))
    woken = wake_all(pool, Awaited.BREAKER, ports)
    check_reset(before, is_waited_for=bool(woken))
    return woken


def check_reset(pool: Pool, *, is_waited_for: bool) -> None:
    """Raises ValueError for a breaker that is closed and that no incident waits for."""
    if not (pool.is_tripped or is_waited_for):
        raise ValueError(f"the breaker of pool {pool.name} is not open")


def pause_pool(pool: str, seconds: int, why: str, ports: Ports) -> Pause:
    """Touch nothing in the pool for so long. 0 ends a pause; `why` is kept for some days then, too."""
    return _pause(names.pool_pause_sk(pool), seconds, why, ports)


def pause_node(node_id: str, seconds: int, why: str, ports: Ports) -> Pause:
    """The same for one node. Raises NotFound."""
    return _pause(names.node_pause_sk(node_of(node_id, ports).node_id), seconds, why, ports)


def _pause(key: str, seconds: int, why: str, ports: Ports) -> Pause:
    pause = Pause(ports.clock() + timedelta(seconds=seconds), why)
    ports.pauses.save(key, pause)
    return pause
