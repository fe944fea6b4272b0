"""Everything that an operator may want to know of one node, read together."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodeheal.contract.health_event import NodeHardwareReported
from nodeheal.contract.vocabulary import Action, IncidentState, NodeState
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.liveness import apply_heartbeat
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.verbs import VERBS
from nodeheal.operations.isolate import DRAINED
from nodeheal.ports import Ports
from nodeheal.services.operators.review_incidents import list_incidents
from nodeheal.services.recovery.pool_size import Slots, slots_of
from nodeheal.services.saving import node_of

HANDED_OVER_LOOKED_UP = timedelta(days=30)


@dataclass(frozen=True)
class NodeView:
    """A node with what surrounds it. `since`: None where nobody has written down when the state began.

    `handed_over`: the recent incidents that a human has and has not closed.
    `recoveries`: the incidents that took it out of service, the newest first, while they are kept. `hardware`: None
    where it has not reported what it is made of.
    """

    node: Node
    pool: Pool
    since: datetime | None
    attempts_left: dict[Action, int]
    has_slot: bool
    slots_held: int
    slots: Slots
    handed_over: tuple[str, ...] = ()
    recoveries: tuple[Incident, ...] = ()
    hardware: NodeHardwareReported | None = None


def look_at_node(node_id: str, ports: Ports, policy: RecoveryPolicy) -> NodeView:
    """The node as it is now, measured by this policy. Raises NotFound."""
    node = node_of(node_id, ports)
    node = apply_heartbeat(node, ports.heartbeats.of(node.instance_id), ports.clock())
    holders = ports.pools.holders(node.pool)
    pool = policy.pool(node.pool)
    not_its = {action for action, verb in VERBS.items() if not verb.is_on(pool)}
    not_its.add(Action.RESTART_WORKLOAD)  # counted for the job, not for the node
    limits = {action: limit for action, limit in policy.limits.items() if action not in not_its}
    spent = ports.attempts.spent(node_scope(node_id), *limits.values())
    left = {action: max(0, limit.limit - spent[limit.group]) for action, limit in limits.items()}
    slots = slots_of(node.pool, ports, policy)
    theirs = _handed_over(node, ports)
    shown, around = node.as_shown(ports.clock()), ports.pools.get(node.pool)
    since, past, hardware = _since(node, ports), tuple(_recoveries(node, ports)), ports.hardware.of(node_id)
    return NodeView(shown, around, since, left, node_id in holders, len(holders), slots, theirs, past, hardware)


def _recoveries(node: Node, ports: Ports) -> Iterator[Incident]:
    for past in node.recoveries:
        with suppress(NotFound):
            yield ports.incidents.incident(past.incident_id)


def _handed_over(node: Node, ports: Ports) -> tuple[str, ...]:
    found = list_incidents(ports, [node.pool], [IncidentState.ESCALATED], ports.clock() - HANDED_OVER_LOOKED_UP)
    return tuple(incident.incident_id for incident in found if incident.node_id == node.node_id)


def _since(node: Node, ports: Ports) -> datetime | None:
    """When the state began: by its history; of one that is older than that, by its proof or its incident."""
    newest = node.state_changes[0] if node.state_changes else None
    entered = newest.at if newest is not None and newest.state is node.state else None
    if entered is not None:
        return entered
    if node.state in (NodeState.HEALTHY, NodeState.PROBATION) and node.healthy_since is not None:
        return node.healthy_since
    if node.open_incident is None:
        return None
    try:
        history = ports.incidents.history(node.open_incident)
    except NotFound:
        return None
    if node.state not in OUT_OF_SERVICE:
        return history.incident.opened_at
    drained = [entry.at for entry in history.timeline if entry.entry_id.startswith(f"{DRAINED}-")]
    return drained[-1] if drained else None
