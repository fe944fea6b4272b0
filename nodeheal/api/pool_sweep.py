"""The sweep of a pool: which nodes are diagnosed one after another, and what that takes."""

from nodeheal.api.base_view import View
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.operators.check_act import why_pool_not_now
from nodeheal.services.operators.describe_act import how_long_checks_take
from nodeheal.services.saving import node_of


class SweepPlan(View):
    """What a sweep would do now: its free nodes of so many, and how long their checks take, in words."""

    pool: str
    free: tuple[str, ...]
    nodes: int
    checks: str


def planned_sweep(pool: str, level: int | None, ports: Ports, policy: RecoveryPolicy) -> SweepPlan:
    """Return the plan of a sweep. Raises ValueError where nothing in the pool is touched now."""
    if held := why_pool_not_now(pool, ports):
        raise ValueError(held)
    now, pauses, nodes = ports.clock(), ports.pauses.read(), ports.nodes.in_pool(pool)
    free = tuple(node.node_id for node in nodes if node.is_available(now, pauses))
    checks = how_long_checks_take(pool, level, policy, len(free))
    return SweepPlan(pool=pool, free=free, nodes=len(nodes), checks=checks)


def is_free(node_id: str, ports: Ports) -> bool:
    """Whether the node may be diagnosed now. Raises NotFound."""
    return node_of(node_id, ports).is_available(ports.clock(), ports.pauses.read())
