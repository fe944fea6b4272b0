"""Implements FleetIndex over the table and its index. Keys are defined in contract/names.py."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from nodeheal.adapters.aws.items import Table, fields_of, from_item, plain, to_item
from nodeheal.contract import names
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports.storage import SweepCursor

# Sorts before anything that can follow in a key, and after the key itself.
_NEXT = " "
_END = "~"


class DynamoFleetIndex:
    """Implements FleetIndex."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def pools(self) -> Sequence[str]:
        return sorted(plain(item)["pool"] for item in self._table.query(names.POOLS_PK, names.pool_pk("")))

    def liveness_page(self, pool: str, after: str, limit: int) -> tuple[Sequence[NodeLiveness], str]:
        between = (f"{after}{_NEXT}" if after else "node#", f"node#{_END}")
        fields = ("node_id", "last_seen", "state", "instance_id", "boot_id", names.INDEX_SORT_KEY)
        items = self._table.page_index(
            names.INDEX, names.pool_pk(pool), between, kind=names.node_pk(""), limit=limit, fields=fields
        )
        is_end = len(items) < limit
        return [from_item(NodeLiveness, item) for item in items], "" if is_end else plain(items[-1])[
            names.INDEX_SORT_KEY
        ]

    def incidents(self, pool: str, state: IncidentState, since: datetime, until: datetime) -> Iterator[Incident]:
        prefix = f"incident#{state}#"
        between = (f"{prefix}{since:%Y-%m-%dT%H:%M:%SZ}", f"{prefix}{until:%Y-%m-%dT%H:%M:%SZ}")
        for item in self._table.between(names.INDEX, names.pool_pk(pool), between, kind=names.incident_pk("")):
            yield from_item(Incident, item)

    def cursor(self) -> SweepCursor:
        item = self._table.get(names.SWEEP_PK, names.SWEEP_SK)
        return from_item(SweepCursor, item) if item else SweepCursor()

    def save_cursor(self, cursor: SweepCursor) -> None:
        self._table.put(to_item({"pk": names.SWEEP_PK, "sk": names.SWEEP_SK, **fields_of(cursor)}))
