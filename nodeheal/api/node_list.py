"""Queries that list nodes. They read less than those about one node, and import less."""

from collections.abc import Iterator, Sequence
from itertools import islice

from nodeheal.api.pages import WHOLE, ListKind, Page, Rows, bad_cursor, place_of, take
from nodeheal.api.views import NodeRow, UnenrolledRow
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Availability
from nodeheal.domain.fleet.liveness import Heartbeat, apply_heartbeat
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import Pause, Pauses
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import doing_now, shown_title
from nodeheal.ports import Ports
from nodeheal.services.operators.node_availability import availability_of, open_incident_of


def nodes(
    pools: Sequence[str], pauses: Pauses, ports: Ports, states: Sequence[Availability] = (), page: Page = WHOLE
) -> Rows[NodeRow]:
    """Return the nodes of these pools as they are now, by pool and id. `states`: only those; empty: all.

    Raises ValueError for a cursor of another list.
    """
    now = ports.clock()
    heard = (
        (apply_heartbeat(record, heartbeat, now).as_shown(now), heartbeat)
        for record, heartbeat in _with_heartbeats(_records(pools, ports, page), page, ports)
    )
    known = ((*pair, heartbeat) for record, heartbeat in heard for pair in availability_of([record], ports))
    wanted = (node for node in known if not states or node[1] in states)
    items, cursor = take(wanted, page, ListKind.nodes, lambda node: (node[0].pool, node[0].node_id))
    rows = (
        _row(
            record,
            available,
            open_incident_of(record, ports),
            pauses.of_node(record.node_id, now),
            is_silent=heartbeat is not None and heartbeat.is_missed(now),
        )
        for record, available, heartbeat in items
    )
    return Rows[NodeRow](rows=tuple(rows), next=cursor)


def _with_heartbeats(records: Iterator[Node], page: Page, ports: Ports) -> Iterator[tuple[Node, Heartbeat | None]]:
    """Yield each node with its machine's heartbeat: of a page those of its nodes are read, of a whole list all."""
    if page.limit is None:
        newest = ports.heartbeats.newest()
        yield from ((record, newest.get(record.instance_id)) for record in records)
        return
    while some := list(islice(records, page.read_at_once)):
        heartbeats = ports.heartbeats.of([record.instance_id for record in some])
        yield from ((record, heartbeats.get(record.instance_id)) for record in some)


def _records(pools: Sequence[str], ports: Ports, page: Page) -> Iterator[Node]:
    """Yield the nodes behind the page's cursor, and read no more of them than are consumed."""
    first, after = place_of(page, ListKind.nodes, 2) or ("", "")
    if first and first not in pools:
        raise bad_cursor(page.after, ListKind.nodes, f": it goes on in pool {first}")
    for name in sorted(pools):
        if name >= first:
            yield from ports.fleet_index.nodes_after(name, after if name == first else "", page.read_at_once)


def unenrolled(ports: Ports) -> list[UnenrolledRow]:
    """Return the nodes that report and are not enrolled."""
    return [
        UnenrolledRow(
            node=record.node_id,
            pool=record.pool,
            cluster=record.cluster.name,
            agent=record.agent_version,
            last_seen=record.last_seen,
        )
        for record in ports.nodes.unenrolled()
    ]


def _row(
    record: Node, available: Availability, incident: Incident | None, pause: Pause | None, *, is_silent: bool
) -> NodeRow:
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
        machine=record.machine or None,
        paused_until=pause.until if pause is not None else None,
        paused_why=pause.why if pause is not None else None,
        reason=f"{never}{record.state_reason}",
    )


def why_held(incident: Incident) -> str:
    """Return who or what an open incident comes from, and what it waits for, in words."""
    root = incident.root
    cause = " ".join(root.evidence.split()) if root.code == OPERATOR_REQUEST else shown_title(incident)
    return "; ".join(filter(None, [cause, doing_now(incident)]))
