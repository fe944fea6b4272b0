"""A free node that has not been diagnosed for long: where the policy says so, it is diagnosed while no job needs it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import IDLE_CHECK, NODES_LINE, SWEEP_SOURCE, pool_line
from nodeheal.contract.vocabulary import Family, NodeState, Verdict
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.intake.finding_about import finding_about
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.intake.new_nodes import why_not_diagnosed
from nodeheal.services.recovery.pool_size import slots_of

TURN_SECONDS = 60  # the sweep's own interval


def diagnose_idle_node(pool: str, nodes: Sequence[NodeLiveness], ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """Start the diagnosis of one of these nodes of the pool, where one is free and its turn has come; returns it.

    Each free node has its turn, one a call, so that a call costs the read of one node. Safe to repeat.
    """
    hours, now = policy.pool(pool).idle_check_hours, ports.clock()
    free = sorted(node.node_id for node in nodes if _is_free(node, now))
    if not hours or not free:
        return []
    node = ports.nodes.get(free[int(now.timestamp() // TURN_SECONDS) % len(free)])
    if node is None or not _is_due(node, hours, now) or _is_needed(pool, ports, policy):
        return []
    if why_not_diagnosed(node, ports.pauses.read(), ports, policy):
        return []
    ingest(_finding(node, now), ports, policy)
    return [node.node_id]


def _is_free(node: NodeLiveness, now: datetime) -> bool:
    """Whether it serves, and no job or incident has it."""
    serves = node.state is NodeState.HEALTHY or node.is_past_probation(now)
    return serves and not (node.open_incident or node.job_id or node.claimed_by)


def _is_due(node: Node, hours: int, now: datetime) -> bool:
    proven_at = max(filter(None, (node.passed_at, node.healthy_since, node.booted_at)))
    return now - proven_at >= timedelta(hours=hours)


def _is_needed(pool: str, ports: Ports, policy: RecoveryPolicy) -> bool:
    """Whether a job waits for nodes, or a broken node would find no slot of the budget."""
    if ports.operations.queued(pool_line(NODES_LINE, pool)):
        return True
    held = len(ports.pools.holders(pool))
    return held > 0 and held + 1 >= slots_of(pool, ports, policy).total


def _finding(node: Node, now: datetime) -> HealthEvent:
    """That the node is due. In an hour it is the same event, and so the same incident."""
    last = f"it last passed its diagnostics at {node.passed_at:%Y-%m-%d %H:%M} UTC" if node.passed_at else ""
    return finding_about(
        node,
        f"idle-{node.node_id}-{now:%Y%m%dT%H}",
        now,
        source=SWEEP_SOURCE,
        family=Family.host,
        code=IDLE_CHECK,
        verdict=Verdict.DEGRADED,
        evidence=last or "it has never been diagnosed",
    )
