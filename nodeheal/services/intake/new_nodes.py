"""A node comes up for the first time: where the policy says so, it is diagnosed before it serves.

Such a node waits in its pool's line until one of the pool's places for new nodes is free. These places are apart from
the disruption budget: a node that has never served disrupts nobody.
"""

from collections.abc import Callable
from datetime import timedelta

from nodeheal.contract.health_event import HealthEvent, NodeBooted
from nodeheal.contract.names import NEW_NODE, SWEEP_SOURCE, new_nodes_line
from nodeheal.contract.vocabulary import Action, Family, Verdict
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.pause import NO_PAUSES, Pauses
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.operations.new_node import leave_line, stand_in_line
from nodeheal.ports import Ports
from nodeheal.services.intake.finding_about import finding_about
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery.new_node_places import claim_place
from nodeheal.services.scheduling import checks_new_nodes

# A machine that has run for longer when its agent is first heard is an old one that gets an agent. GPU machines boot in
# up to 15 minutes.
NEW_SECONDS = 1_800


def on_first_boot(event: NodeBooted, ports: Ports, read_policy: Callable[[], RecoveryPolicy]) -> list[str]:
    """Handles a recorded boot: if it is the node's first, starts the diagnostics that wait in its pool's line."""
    pool = note_new_node(event, ports)
    return diagnose_new_nodes(pool, ports, read_policy()) if pool is not None else []


def note_new_node(event: NodeBooted, ports: Ports) -> str | None:
    """Put the node into the line of its pool, if this is its first boot and has just been; the pool. Repeating is
    harmless."""
    node = ports.nodes.get(event.node_id)
    is_fresh = ports.clock() - event.booted_at < timedelta(seconds=NEW_SECONDS)
    if node is None or node.boot_id != event.boot_id or not is_fresh or _has_served(node):
        return None
    stand_in_line(node, ports)
    return node.pool


def diagnose_new_nodes(pool: str, ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """Starts diagnostics for as many nodes of the line as there are places. Returns these nodes. Safe to repeat."""
    begun: list[str] = []
    line = ports.operations.queued(new_nodes_line(pool))
    pauses = ports.pauses.read() if line else NO_PAUSES
    for standing in line:
        node = ports.nodes.get(standing.node_id)
        if node is None or node.pool != pool or _has_served(node) or standing.deadline_at <= ports.clock():
            leave_line(standing, ports)
            continue
        if _why_not_now(node, pauses, ports, policy):
            continue
        if not claim_place(node, policy.pool(pool).new_nodes.max_nodes, ports):
            break
        ingest(_finding(node), ports, policy)
        leave_line(standing, ports)
        begun.append(node.node_id)
    return begun


def _has_served(node: Node) -> bool:
    """Whether it has booted before, has been diagnosed, or an incident or job has it by now."""
    was_proven = node.passed_at is not None or node.healthy_since is not None
    is_busy = node.open_incident is not None or node.job_id is not None or node.claimed_by is not None
    return bool(node.past_boots) or was_proven or is_busy or node.state in OUT_OF_SERVICE


def _why_not_now(node: Node, pauses: Pauses, ports: Ports, policy: RecoveryPolicy) -> str:
    """Returns why it is not diagnosed as a new node now. Empty: it may be."""
    if not policy.pool(node.pool).new_nodes.diagnose:
        return "the policy does not ask for it"
    if checks_new_nodes(ports.scheduler_of(node)):
        return "its scheduler checks it before its first job"
    return why_not_diagnosed(node, pauses, ports, policy, serves=False)


def why_not_diagnosed(node: Node, pauses: Pauses, ports: Ports, policy: RecoveryPolicy, *, serves: bool) -> str:
    """Returns why nodeheal must not take a node out of service in which no fault is known. Empty: it may.

    `serves`: its scheduler gives it work, unless a person keeps it from that.
    """
    now, rules, pool = ports.clock(), policy.pool(node.pool), ports.pools.get(node.pool)
    if rules.mode_of(Action.ISOLATE) is not Mode.act:
        return "the policy does not allow it"
    if not node.is_available(now, pauses):
        return "it is not in service, or paused"
    held = policy.why_only_observe(node.node_id, node.pool, now) or pauses.why_pool_is_paused(node.pool, now)
    if held or pool.is_tripped:
        return held or "the breaker is open"
    scheduler = ports.scheduler_of(node)
    workloads = scheduler.workloads
    if workloads is None:
        return "its scheduler does not say what runs there"
    try:
        placement = scheduler.gate.placement_of(node)
        if serves and not placement.is_schedulable:
            return "its scheduler gives it no work"
        unmanaged_tasks = workloads.unmanaged_tasks(node, placement)
    except NotFound:
        return "the scheduler does not know it yet"
    return "tasks of others run there" if unmanaged_tasks else ""


def _finding(node: Node) -> HealthEvent:
    """That the node is new. The same boot always makes the same event, and so the same incident."""
    return finding_about(
        node,
        f"new-{node.boot_id}",
        node.booted_at,
        source=SWEEP_SOURCE,
        family=Family.host,
        code=NEW_NODE,
        verdict=Verdict.DEGRADED,
        evidence="its first boot was reported",
    )
