"""Implements FleetIndex over the table and its index. Keys are defined in contract/names.py."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from nodeheal.adapters.aws.items import Table, behind, fields_of, from_item, plain, to_item
from nodeheal.adapters.aws.stores import nodes_behind
from nodeheal.contract import names
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports.storage import SweepCursor

_LIVENESS = (
    "node_id",
    "last_seen",
    "state",
    "instance_id",
    "boot_id",
    "cluster",
    "probation_until",
    "open_incident",
    "job_id",
    "claimed_by",
    "is_spare",
    "provider",
    "accelerators",
)


class DynamoFleetIndex:
    """Implements FleetIndex."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def pools(self) -> Sequence[str]:
        return sorted(plain(item)["pool"] for item in self._table.query(names.POOLS_PK, names.pool_pk("")))

    def liveness_page(self, pool: str, after: str, limit: int) -> tuple[Sequence[NodeLiveness], str]:
        kind = names.node_pk("")
        items = self._table.page_index(
            names.INDEX, names.pool_pk(pool), behind(kind, after), kind=kind, limit=limit, fields=_LIVENESS
        )
        rows = [from_item(NodeLiveness, item) for item in items]
        return rows, "" if len(rows) < limit else rows[-1].node_id

    def nodes_after(self, pool: str, node_id: str = "", page_size: int | None = None) -> Iterator[Node]:
        return nodes_behind(self._table, names.pool_pk(pool), node_id, page_size)

    def incidents(self, pool: str, state: IncidentState, since: datetime, until: datetime) -> Iterator[Incident]:
        return self._incidents(pool, state, since, until)

    def newest_incidents(
        self, pool: str, state: IncidentState, since: datetime, until: datetime, page_size: int | None = None
    ) -> Iterator[Incident]:
        return self._incidents(pool, state, since, until, page_size=page_size, newest_first=True)

    def _incidents(
        self, pool: str, state: IncidentState, since: datetime, until: datetime, **order: Any
    ) -> Iterator[Incident]:
        prefix, partition, kind = f"incident#{state}#", names.pool_pk(pool), names.incident_pk("")
        between = (f"{prefix}{since:%Y-%m-%dT%H:%M:%SZ}", f"{prefix}{until:%Y-%m-%dT%H:%M:%SZ}")
        for item in self._table.between(names.INDEX, partition, between, kind=kind, **order):
            yield from_item(Incident, item)

    def cursor(self) -> SweepCursor:
        item = self._table.get(names.SWEEP_PK, names.SWEEP_SK)
        return from_item(SweepCursor, item) if item else SweepCursor()

    def save_cursor(self, cursor: SweepCursor) -> None:
        self._table.put(to_item({"pk": names.SWEEP_PK, "sk": names.SWEEP_SK, **fields_of(cursor)}))
