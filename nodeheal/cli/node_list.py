"""Nodes, as `nodeheal nodes list` tells of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from nodeheal.api.views import NodeRow
from nodeheal.cli.say import age, say
from nodeheal.cli.table import say_table
from nodeheal.contract.vocabulary import Availability
from nodeheal.domain.humanize import counted
from nodeheal.domain.recovery.incident import short_id

# Of the others the node's own reason says more: what was tried, and who stands in for it.
_HELD_BY = (Availability.SUSPECT, Availability.DRAINING, Availability.DRAINED)


def say_nodes(
    rows: Sequence[NodeRow], now: datetime, on_slurm: Mapping[str, str], *, has_pool: bool, is_wide: bool
) -> None:
    """A list, for people. `on_slurm`: what Slurm says of a node, in words, by its id."""
    pool_head = ("POOL",) if has_pool else ()
    wide_head = ("RACK",) if is_wide else ()
    head = ("NODE", *pool_head, "STATE", "SPARE", "JOB", "INCIDENT", "SEEN", *wide_head, "WHY")
    cells = [_cells(row, now, on_slurm.get(row.node, ""), has_pool=has_pool, is_wide=is_wide) for row in rows]
    say_table(head, cells, is_wide=is_wide)
    counts = Counter(row.availability.value for row in rows)
    summary = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none in this state"
    say(f"{counted(len(rows), 'node')}: {summary}")


def _cells(row: NodeRow, now: datetime, on_slurm: str, *, has_pool: bool, is_wide: bool) -> list[str]:
    incident = row.incident and (row.incident if is_wide else short_id(row.incident))
    until = row.paused_until
    paused = f"paused until {until:%Y-%m-%d %H:%M:%S} UTC ({row.paused_why})" if until else ""
    is_said = row.held is not None and row.availability in _HELD_BY
    held = f"{row.held}, since {row.held_since:%Y-%m-%d %H:%M} UTC" if is_said else ""
    return [
        row.node,
        *([row.pool] if has_pool else []),
        row.availability.value,
        "spare" if row.spare else "-",
        row.job or "-",
        incident or "-",
        age(row.last_seen, now) + (" (silent)" if row.silent else ""),
        *([row.rack or "-"] if is_wide else []),
        "; ".join(filter(None, [paused, held or row.reason, f"Slurm: {on_slurm}" if on_slurm else ""])),
    ]
