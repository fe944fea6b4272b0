"""A free node that has not been diagnosed for long: where the policy says so, it is diagnosed while no job needs it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import IDLE_CHECK, NODES_LINE, SWEEP_SOURCE, pool_line
from nodeheal.contract.vocabulary import Family, NodeState, Verdict
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.intake.finding_about import finding_about
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.intake.new_nodes import why_not_diagnosed
from nodeheal.services.recovery.pool_size import slots_of

TURN_SECONDS = 60  # the sweep's own interval
MOST_HOURS = 6  # a check that is refused is tried again after so long


def diagnose_idle_node(pool: str, nodes: Sequence[NodeLiveness], ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """Start the diagnosis of one of these nodes of the pool, where one is free and its turn has come; returns it.

    Each free node has its turn, one a call, so that a call costs the read of one node. Safe to repeat. Where a service
    does not answer, it is left to a later turn.
    """
    try:
        return _diagnose(pool, nodes, ports, policy)
    except NodehealError:
        return []


def _diagnose(pool: str, nodes: Sequence[NodeLiveness], ports: Ports, policy: RecoveryPolicy) -> list[str]:
    hours, now = policy.pool(pool).idle_check_hours, ports.clock()
    free = sorted(node.node_id for node in nodes if _is_free(node, now))
    if not hours or not free:
        return []
    node = ports.nodes.get(free[int(now.timestamp() // TURN_SECONDS) % len(free)])
    if node is None or not _is_due(node, hours, now) or _is_needed(pool, ports, policy):
        return []
    if why_not_diagnosed(node, ports.pauses.read(), ports, policy, serves=True):
        return []
    ingest(_finding(node, hours, now), ports, policy)
    return [node.node_id]


def _is_free(node: NodeLiveness, now: datetime) -> bool:
    """Whether it serves, and no job or incident has it."""
    serves = node.state is NodeState.HEALTHY or node.is_past_probation(now)
    return serves and not (node.open_incident or node.job_id or node.claimed_by)


def _is_due(node: Node, hours: int, now: datetime) -> bool:
    proven_at = max(filter(None, (node.passed_at, node.healthy_since, node.booted_at)))
    return now - proven_at >= timedelta(hours=hours)


def _is_needed(pool: str, ports: Ports, policy: RecoveryPolicy) -> bool:
    """Whether a job waits for nodes, or there is no slot of the budget, or a broken node would find none."""
    if ports.operations.queued(pool_line(NODES_LINE, pool)):
        return True
    held = len(ports.pools.holders(pool))
    return held + (held > 0) >= slots_of(pool, ports, policy).total


def _finding(node: Node, hours: int, now: datetime) -> HealthEvent:
    """That the node is due: since its last proof, and for some hours the same event, and so the same incident."""
    seconds = min(hours, MOST_HOURS) * 3_600
    since = datetime.fromtimestamp(now.timestamp() // seconds * seconds, tz=UTC)
    last = f"it last passed its diagnostics at {node.passed_at:%Y-%m-%d %H:%M} UTC" if node.passed_at else ""
    return finding_about(
        node,
        f"idle-{node.node_id}-{since:%Y%m%dT%H}",
        since,
        source=SWEEP_SOURCE,
        family=Family.host,
        code=IDLE_CHECK,
        verdict=Verdict.DEGRADED,
        evidence=last or "it has never been diagnosed",
    )
