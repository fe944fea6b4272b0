"""How the pools stand: slots of their budgets, lines for them, breakers, jobs. A few reads a pool, once a minute."""

from nodeheal.contract import metrics
from nodeheal.contract.names import pool_line
from nodeheal.contract.vocabulary import Awaited
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.review.fleet_good import FleetGood
from nodeheal.domain.review.measures import Measure
from nodeheal.ports import Ports
from nodeheal.services.recovery.pool_size import slots_of
from nodeheal.services.sweep import Swept


def measure_pools(done: Swept, ports: Ports, policy: RecoveryPolicy) -> list[Measure]:
    """The measures of every pool, as a sweep leaves it. What that sweep has not come to is left out."""
    measures, standing, is_open = [], 0, 0
    for pool in ports.fleet_index.pools():
        measures.append(Measure(metrics.SLOTS_HELD, len(ports.pools.holders(pool)), (pool,)))
        if pool in done.counted:
            measures.append(Measure(metrics.SLOTS_LIMIT, slots_of(pool, ports, policy).total, (pool,)))
        running = done.running_jobs.get(pool)
        if running is not None:
            measures.append(Measure(metrics.JOBS_SHOWING_STEPS, running.shown, (pool,)))
            measures.append(Measure(metrics.JOBS_WITH_FINDINGS, running.with_findings, (pool,)))
        good = FleetGood(done.accelerators.get(pool), running).percent
        if good is not None:
            measures.append(Measure(metrics.FLEET_GOOD, good, (pool,)))
        standing += len(ports.operations.queued(pool_line(Awaited.BUDGET, pool)))
        is_open += ports.pools.get(pool).is_tripped
    return [*measures, Measure(metrics.IN_LINE, standing), Measure(metrics.BREAKERS_OPEN, is_open)]
