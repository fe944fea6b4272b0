"""Nodes, as `nodeheal nodes list` tells of them."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nodeheal.cli.say import age, iso, say
from nodeheal.cli.table import say_table
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Availability
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.recovery.incident import Incident, short_id
from nodeheal.domain.review.review import doing_now, shown_title

if TYPE_CHECKING:
    from nodeheal.cli.slurm import Reports


# Of the others the node's own reason says more: what was tried, and who stands in for it.
_HELD_BY = (Availability.SUSPECT, Availability.DRAINING, Availability.DRAINED)


def row_of(
    node: Node,
    available: Availability,
    incident: Incident | None,
    now: datetime,
    reports: "Reports | None",
    silent: Collection[str],
) -> dict[str, Any]:
    """One line of a list, for programs. `incident`: its open one. `silent`: instance ids whose heartbeats are missing.

    "reason" is the node's own; "held" says who or what keeps it from new work, and since when.
    """
    until = node.paused_until if node.is_paused(now) else None
    return {
        "node": node.node_id,
        "pool": node.pool,
        "state": node.state.value,
        "availability": available.value,
        "spare": node.is_spare,
        "job": node.job_id,
        "incident": node.open_incident,
        "held": why_held(incident) if incident is not None else None,
        "held_since": iso(incident.opened_at) if incident is not None else None,
        "last_seen": iso(node.last_seen) if node.has_reported else None,
        "silent": node.instance_id in silent,
        "rack": node.rack or None,
        "paused_until": iso(until),
        "paused_why": node.paused_why if until else None,
        "reason": node.state_reason if node.has_reported else f"its agent has never reported; {node.state_reason}",
        **({} if reports is None else _on_slurm(node, reports)),
    }


def why_held(incident: Incident) -> str:
    """Who or what an open incident comes from, and what it waits for, in words."""
    root = incident.root
    cause = " ".join(root.evidence.split()) if root.code == OPERATOR_REQUEST else shown_title(incident)
    return "; ".join(filter(None, [cause, doing_now(incident)]))


def _on_slurm(node: Node, reports: "Reports") -> dict[str, Any]:
    from nodeheal.cli.slurm import node_at, node_json

    return {"slurm": node_json(node_at(node, reports))}


def say_nodes(rows: list[dict[str, Any]], now: datetime, *, has_pool: bool, is_wide: bool) -> None:
    """A list, for people."""
    pool_head = ("POOL",) if has_pool else ()
    wide_head = ("RACK",) if is_wide else ()
    head = ("NODE", *pool_head, "STATE", "SPARE", "JOB", "INCIDENT", "SEEN", *wide_head, "WHY")
    say_table(head, [_cells(row, now, has_pool=has_pool, is_wide=is_wide) for row in rows], is_wide=is_wide)
    counts = Counter(str(row["availability"]) for row in rows)
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none in this state"
    say(f"{counted(len(rows), 'node')}: {told}")


def _cells(row: dict[str, Any], now: datetime, *, has_pool: bool, is_wide: bool) -> list[str]:
    incident = row["incident"] and (row["incident"] if is_wide else short_id(row["incident"]))
    seen = age(datetime.fromisoformat(row["last_seen"]) if row["last_seen"] else None, now)
    seen += " (silent)" if row["silent"] else ""
    until = datetime.fromisoformat(row["paused_until"]) if row["paused_until"] else None
    paused = f"paused until {until:%Y-%m-%d %H:%M:%S} UTC ({row['paused_why']})" if until else ""
    since = f"since {datetime.fromisoformat(row['held_since']):%Y-%m-%d %H:%M} UTC" if row["held"] else ""
    is_said = row["availability"] in _HELD_BY
    held = f"{row['held']}, {since}" if row["held"] and is_said else ""
    on_slurm = f"Slurm: {row['slurm']['summary']}" if row.get("slurm") else ""
    return [
        row["node"],
        *([row["pool"]] if has_pool else []),
        row["availability"],
        "spare" if row["spare"] else "-",
        row["job"] or "-",
        incident or "-",
        seen,
        *([row["rack"] or "-"] if is_wide else []),
        "; ".join(filter(None, [paused, held or row["reason"], on_slurm])),
    ]
