"""Queries that list nodes. They read less than those about one node, and import less."""

from collections.abc import Sequence
from datetime import datetime

from nodeheal.api.views import NodeRow, UnenrolledRow
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Availability
from nodeheal.domain.fleet.liveness import apply_heartbeat
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import doing_now, shown_title
from nodeheal.ports import Ports
from nodeheal.services.operators.node_availability import availability_of, open_incident_of


def nodes(pools: Sequence[str], ports: Ports, states: Sequence[Availability] = ()) -> list[NodeRow]:
    """Return the nodes of these pools as they are now. `states`: only those; empty: all."""
    now, heartbeats = ports.clock(), ports.heartbeats.newest()
    records = [record for name in pools for record in ports.nodes.in_pool(name)]
    heard = [apply_heartbeat(record, heartbeats.get(record.instance_id), now).as_shown(now) for record in records]
    silent = {name for name, heartbeat in heartbeats.items() if heartbeat.is_missed(now)}
    return [
        _row(record, available, open_incident_of(record, ports), now, is_silent=record.instance_id in silent)
        for record, available in availability_of(heard, ports)
        if not states or available in states
    ]


def unenrolled(ports: Ports) -> list[UnenrolledRow]:
    """Return the nodes that report and are not enrolled."""
    return [
        UnenrolledRow(
            node=record.node_id,
            pool=record.pool,
            cluster=record.cluster,
            agent=record.agent_version,
            last_seen=record.last_seen,
        )
        for record in ports.nodes.unenrolled()
    ]


def _row(
    record: Node, available: Availability, incident: Incident | None, now: datetime, *, is_silent: bool
) -> NodeRow:
    is_paused = record.is_paused(now)
    never = "" if record.has_reported else "its agent has never reported; "
    return NodeRow(
        node=record.node_id,
        pool=record.pool,
        state=record.state,
        availability=available,
        spare=record.is_spare,
        job=record.job_id,
        incident=record.open_incident,
        held=why_held(incident) if incident is not None else None,
        held_since=incident.opened_at if incident is not None else None,
        last_seen=record.last_seen if record.has_reported else None,
        silent=is_silent,
        rack=record.rack or None,
        paused_until=record.paused_until if is_paused else None,
        paused_why=record.paused_why if is_paused else None,
        reason=f"{never}{record.state_reason}",
    )


def why_held(incident: Incident) -> str:
    """Return who or what an open incident comes from, and what it waits for, in words."""
    root = incident.root
    cause = " ".join(root.evidence.split()) if root.code == OPERATOR_REQUEST else shown_title(incident)
    return "; ".join(filter(None, [cause, doing_now(incident)]))
