"""How the pools stand: slots of their budgets, lines for them, breakers. A few reads for each pool, once a minute."""

from collections.abc import Mapping

from nodeheal.contract import metrics
from nodeheal.contract.names import pool_line
from nodeheal.contract.vocabulary import Awaited
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.review.measures import Measure
from nodeheal.ports import Ports
from nodeheal.services.recovery.pool_size import slots_of


def measure_pools(counted: Mapping[str, int], ports: Ports, policy: RecoveryPolicy) -> list[Measure]:
    """The measures of every pool. `counted`: how many nodes a pool has, where that is known; its limit needs that."""
    measures, standing, is_open = [], 0, 0
    for pool in ports.fleet_index.pools():
        measures.append(Measure(metrics.SLOTS_HELD, len(ports.pools.holders(pool)), (pool,)))
        if pool in counted:
            measures.append(Measure(metrics.SLOTS_LIMIT, slots_of(pool, ports, policy).total, (pool,)))
        standing += len(ports.operations.queued(pool_line(Awaited.BUDGET, pool)))
        is_open += ports.pools.get(pool).is_tripped
    return [*measures, Measure(metrics.IN_LINE, standing), Measure(metrics.BREAKERS_OPEN, is_open)]
