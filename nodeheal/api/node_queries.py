"""Queries about one node with what surrounds it."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from nodeheal.api.views import (
    DiagnosisView,
    HardwareView,
    NodeView,
    RecoveryRow,
    StateChangeRow,
)
from nodeheal.contract.vocabulary import Action, IncidentState, NodeState, Provider
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.liveness import apply_heartbeat
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.recovery.timeline import NodeDrained, entries_with
from nodeheal.domain.review.review import state_word, title_of
from nodeheal.domain.verbs import VERBS
from nodeheal.ports import Ports
from nodeheal.services.operators.node_availability import availability_of
from nodeheal.services.operators.review_incidents import list_incidents
from nodeheal.services.recovery.pool_size import slots_of
from nodeheal.services.saving import node_of

HANDED_OVER_LOOKED_UP = timedelta(days=30)


def node(node_id: str, ports: Ports, policy: RecoveryPolicy) -> NodeView:
    """Return the node as it is now, measured by this policy. Raises NotFound."""
    record = node_of(node_id, ports)
    record = apply_heartbeat(record, ports.heartbeats.of([record.instance_id]).get(record.instance_id), ports.clock())
    shown, pauses, now = record.as_shown(ports.clock()), ports.pauses.read(), ports.clock()
    pause, of_pool = pauses.of_node(node_id, now), pauses.of_pool(record.pool, now)
    holders, pool = ports.pools.holders(record.pool), ports.pools.get(record.pool)
    # An old count will do: a screen does not list a pool that the sweep has counted.
    slots = slots_of(record.pool, ports, policy, pool.nodes if pool.counted_at is not None else None)
    [(_, available)] = availability_of([shown], ports)
    has_reported, diagnosis = shown.has_reported, shown.last_diagnosis
    return NodeView(
        node=shown.node_id,
        pool=shown.pool,
        provider=shown.provider,
        cluster=shown.cluster.name,
        spare=shown.is_spare,
        rack=shown.rack or None,
        state=shown.state,
        availability=available,
        reason=shown.state_reason,
        since=_since(record, ports),
        job=shown.job_id,
        incident=shown.open_incident,
        handed_over=_handed_over(record, ports),
        attempts_left=_attempts_left(record, ports, policy),
        has_slot=node_id in holders,
        slots_held=len(holders),
        slots=slots.total,
        extra=slots.extra,
        drained_by_us=shown.drained_by_us,
        pool_paused_until=of_pool.until if of_pool is not None else None,
        pool_paused_why=of_pool.why if of_pool is not None else "",
        hardware=_hardware(node_id, ports),
        recoveries=tuple(_recoveries(record, ports)),
        boot=shown.boot_id if has_reported else None,
        booted_at=shown.booted_at if has_reported else None,
        agent=shown.agent_version,
        last_seen=shown.last_seen if has_reported else None,
        accelerators=shown.accelerators,
        probation_until=shown.probation_until,
        paused_until=pause.until if pause is not None else None,
        paused_why=pause.why if pause is not None else "",
        orders=_orders_that_wait(record, ports),
        good_since=shown.healthy_since,
        passed_at=shown.passed_at,
        last_diagnosis=(
            DiagnosisView(at=diagnosis.at, verdict=diagnosis.verdict, reason=diagnosis.reason) if diagnosis else None
        ),
        good_run=shown.diagnostic_baseline,
        states=tuple(
            StateChangeRow(at=change.at, state=change.state, reason=change.reason) for change in shown.state_changes
        ),
    )


def _attempts_left(record: Node, ports: Ports, policy: RecoveryPolicy) -> dict[Action, int]:
    pool = policy.pool(record.pool)
    not_its = {action for action, verb in VERBS.items() if not verb.is_on(pool)}
    not_its.add(Action.RESTART_WORKLOAD)  # counted for the job, not for the node
    limits = {action: limit for action, limit in policy.limits.items() if action not in not_its}
    spent = ports.attempts.spent(node_scope(record.node_id), *limits.values())
    return {action: max(0, limit.limit - spent[limit.group]) for action, limit in limits.items()}


def _orders_that_wait(record: Node, ports: Ports) -> dict[Action, str]:
    if record.provider is not Provider.hyperpod:
        return {}
    standing = (order for of_cluster in ports.fleet_index.cursor().orders for order in of_cluster.standing)
    return {
        order.action: order.waits_because
        for order in standing
        if order.node_id == record.node_id and order.waits_because
    }


def _hardware(node_id: str, ports: Ports) -> HardwareView | None:
    report = ports.hardware.of(node_id)
    if report is None:
        return None
    return HardwareView(at=report.observed_at, machine=report.machine, accelerators=report.accelerators)


def _recoveries(record: Node, ports: Ports) -> Iterator[RecoveryRow]:
    for past in record.recoveries:
        with suppress(NotFound):
            incident = ports.incidents.incident(past.incident_id)
            yield RecoveryRow(
                incident=incident.incident_id,
                opened_at=incident.opened_at,
                fault=title_of(incident.root),
                is_drill=incident.began_as_drill,
                state=state_word(incident).value,
                summary=incident.summary,
            )


def _handed_over(record: Node, ports: Ports) -> tuple[str, ...]:
    since = ports.clock() - HANDED_OVER_LOOKED_UP
    incidents = list_incidents(ports, [record.pool], [IncidentState.ESCALATED], since)
    return tuple(incident.incident_id for incident in incidents if incident.node_id == record.node_id)


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
    drained = [entry.at for entry in entries_with(history.timeline, NodeDrained)]
    return drained[-1] if drained else None
