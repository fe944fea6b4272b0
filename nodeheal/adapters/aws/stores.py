"""Stores nodes, incidents, jobs and operations in DynamoDB. Keys are defined in contract/names.py."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nodeheal.adapters.aws.items import Item, Table, behind, fields_of, from_item, plain, to_item, versioned
from nodeheal.adapters.aws.timeline_items import entry_of, fields_of_entry
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent, NodeHardwareReported
from nodeheal.contract.type_adapters import adapter_of
from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.domain.recovery.decision_context import Observation, observation_of
from nodeheal.domain.recovery.incident import History, Incident, read_history
from nodeheal.domain.recovery.timeline import TimelineEntry, event_entry
from nodeheal.domain.recovery.timeline_fold import Fold
from nodeheal.ports.storage import FAULTS_LOOKED_UP

# How long history is kept: a spool may deliver events that are days old, and an audit covers a quarter.
HISTORY_DAYS = 90
# A node that is not enrolled is deleted a week after its last event.
UNENROLLED_SECONDS = 7 * 86_400
# An operation outlives its deadline, so that it can be concluded then. DynamoDB deletes late, never early.
OPERATION_KEPT_DAYS = 2
# A hundred nodes that fail together read each other's faults: one attribute has all that is needed, without the
# evidence.
_SEEN = "seen"


def _sortable(at: datetime) -> str:
    """Format a time so that its text sorts by time."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _node_item(node: Node) -> Item:
    is_enrolled = node.state is not NodeState.UNENROLLED
    expires = {} if is_enrolled else {names.TTL_ATTRIBUTE: int(node.last_seen.timestamp()) + UNENROLLED_SECONDS}
    return to_item(
        {
            "pk": names.node_pk(node.node_id),
            "sk": names.NODE_SK,
            names.INDEX_PARTITION_KEY: names.pool_pk(node.pool) if is_enrolled else names.UNENROLLED_PK,
            **expires,
            names.INDEX_SORT_KEY: names.node_pk(node.node_id),
            **fields_of(replace(node, version=node.version + 1)),
        }
    )


def _node_put(node: Node) -> dict[str, Any]:
    """Return the node's write in a transaction, on the condition that its version is still the stored one."""
    condition, values = versioned(node.version)
    put: dict[str, Any] = {"Item": _node_item(node), "ConditionExpression": condition}
    return {**put, "ExpressionAttributeValues": to_item(values)} if values else put


def _know_pool(table: Table, node: Node) -> None:
    """Register a pool before its first node: a crash in between leaves a pool without nodes, which is harmless."""
    if node.state is NodeState.UNENROLLED:
        return
    if node.version == 0 or not node.has_reported:
        table.put(to_item({"pk": names.POOLS_PK, "sk": names.pool_pk(node.pool), "pool": node.pool}))


def nodes_behind(table: Table, partition: str, node_id: str = "", page_size: int | None = None) -> Iterator[Node]:
    """Yield the nodes of an index partition whose ids come after this one, by id."""
    kind = names.node_pk("")
    for item in table.between(names.INDEX, partition, behind(kind, node_id), kind=kind, page_size=page_size):
        yield from_item(Node, item)


class DynamoNodeStore:
    """Implements NodeStore."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def get(self, node_id: str) -> Node | None:
        item = self._table.get(names.node_pk(node_id), names.NODE_SK)
        return from_item(Node, item) if item else None

    def save(self, node: Node) -> bool:
        condition, values = versioned(node.version)
        _know_pool(self._table, node)
        return self._table.put(_node_item(node), condition, values)

    def in_pool(self, pool: str) -> Sequence[Node]:
        return list(nodes_behind(self._table, names.pool_pk(pool)))

    def unenrolled(self) -> Sequence[Node]:
        return list(nodes_behind(self._table, names.UNENROLLED_PK))

    def record(self, event: HealthEvent, job_id: str | None, note: str = "", *, in_pool: bool = True) -> None:
        expires = event.observed_at + timedelta(days=HISTORY_DAYS)
        at = f"{_sortable(event.observed_at)}#{event.event_id}"
        item = {
            "pk": names.node_pk(event.node_id),
            _SEEN: adapter_of(Observation).dump_json(observation_of(event, job_id, note)).decode(),
            names.TTL_ATTRIBUTE: int(expires.timestamp()),
        }
        if note:
            # The event is stored only here, for people who read the table; an incident has its own copy.
            item |= {"sk": f"{names.HISTORY_PREFIX}{at}", "note": note, "event": event.model_dump_json()}
        else:
            # Without the event's content: every decision reads hundreds of these.
            item |= {"sk": f"{names.FAULT_PREFIX}{at}"}
            if in_pool:
                item |= {
                    names.INDEX_PARTITION_KEY: names.faults_pk(event.pool),
                    names.INDEX_SORT_KEY: f"{_sortable(event.observed_at)}#{event.node_id}#{event.event_id}",
                }
        self._table.put(to_item(item), "attribute_not_exists(pk)")

    def count_report(self, node_id: str, window: str, until: datetime) -> int:
        sk = f"{names.REPORTS_PREFIX}{window}"
        return self._table.count(names.node_pk(node_id), sk, "reports", int(until.timestamp()))

    def observations(
        self, node_id: str, node_since: datetime, pool: str, pool_since: datetime
    ) -> Sequence[Observation]:
        own = self._table.query_from(
            names.node_pk(node_id),
            names.FAULT_PREFIX,
            _sortable(node_since),
            kind=names.node_pk(""),
            limit=FAULTS_LOOKED_UP,
            fields=(_SEEN,),
        )
        others = self._table.query_from(
            names.faults_pk(pool),
            "",
            _sortable(pool_since),
            kind=names.node_pk(""),
            limit=FAULTS_LOOKED_UP,
            fields=(_SEEN,),
            index=names.INDEX,
        )
        read = (adapter_of(Observation).validate_json(item[_SEEN]["S"]) for item in (*own, *others))
        # Version 0.1 stored history among them.
        by_event = {(s.node_id, s.event_id): s for s in read if not s.note}
        return sorted(by_event.values(), key=lambda s: (s.at, s.event_id, s.node_id))


class DynamoHardwareStore:
    """Implements HardwareStore."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def save(self, report: NodeHardwareReported) -> None:
        at = _sortable(report.observed_at)
        item = {
            "pk": names.node_pk(report.node_id),
            "sk": names.HARDWARE_SK,
            "reported_at": at,
            "report": report.model_dump_json(),
            names.TTL_ATTRIBUTE: int((report.observed_at + timedelta(days=HISTORY_DAYS)).timestamp()),
        }
        self._table.put(to_item(item), "attribute_not_exists(pk) OR reported_at < :at", {":at": at})

    def of(self, node_id: str) -> NodeHardwareReported | None:
        item = self._table.get(names.node_pk(node_id), names.HARDWARE_SK)
        return adapter_of(NodeHardwareReported).validate_json(item["report"]["S"]) if item else None


class DynamoIncidentStore:
    """Implements IncidentStore."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def open(self, incident: Incident, node: Node) -> bool:
        _know_pool(self._table, node)
        new = "attribute_not_exists(pk)"
        return self._table.transact(
            [
                self._put({"Item": self._head(incident), "ConditionExpression": new}),
                self._put({"Item": self._entry(incident.incident_id, event_entry(incident.root))}),
                self._put(_node_put(node)),
            ]
        )

    def append(self, incident_id: str, entry: TimelineEntry) -> bool:
        return self._table.put(self._entry(incident_id, entry), "attribute_not_exists(pk)")

    def fold(self, incident_id: str, fold: Fold) -> bool:
        key = {"pk": names.incident_pk(incident_id)}
        deletes = [
            {
                "Delete": {
                    "TableName": self._table.name,
                    "Key": to_item({**key, "sk": f"{names.TIMELINE_PREFIX}{entry.entry_id}"}),
                    "ConditionExpression": "attribute_exists(pk)",
                }
            }
            for entry in fold.gone
        ]
        unchanged = {
            "ConditionExpression": "attribute_exists(pk) AND (attribute_not_exists(#times) OR #times = :before)",
            "ExpressionAttributeNames": {"#times": "times"},
            "ExpressionAttributeValues": to_item({":before": fold.before.times}),
        }
        return self._table.transact([*deletes, self._put({"Item": self._entry(incident_id, fold.into), **unchanged})])

    def incident(self, incident_id: str) -> Incident:
        head = self._table.get(names.incident_pk(incident_id), names.INCIDENT_SK)
        if head is None:
            raise NotFound(f"no incident {incident_id} in table {self._table.name}")
        return from_item(Incident, head)

    def history(self, incident_id: str) -> History:
        items = {item["sk"]["S"]: item for item in self._table.query(names.incident_pk(incident_id))}
        head = items.pop(names.INCIDENT_SK, None)
        if head is None:
            raise NotFound(f"no incident {incident_id} in table {self._table.name}")
        rows = (item for sk, item in items.items() if sk.startswith(names.TIMELINE_PREFIX))
        return read_history(from_item(Incident, head), map(entry_of, rows))

    def advance(self, incident: Incident, entries: Sequence[TimelineEntry]) -> bool:
        known = fields_of(incident)
        written = ("turn", "state", "step", "step_at", "awaits")
        changed = {name: known[name] for name in written if name in known}
        changed[names.INDEX_SORT_KEY] = self._sort_key(incident)
        gone = ", ".join(f"#{name}" for name in written if name not in known)
        sets = ", ".join(f"#{name} = :{name}" for name in changed)
        turn = {
            "Update": {
                "TableName": self._table.name,
                "Key": to_item({"pk": names.incident_pk(incident.incident_id), "sk": names.INCIDENT_SK}),
                "UpdateExpression": f"SET {sets} REMOVE {gone}" if gone else f"SET {sets}",
                "ConditionExpression": "#turn = :before AND #state <> :over",
                "ExpressionAttributeNames": {f"#{name}": name for name in (*changed, *written)},
                "ExpressionAttributeValues": to_item(
                    {
                        **{f":{name}": value for name, value in changed.items()},
                        ":before": incident.turn - 1,
                        ":over": IncidentState.ESCALATED.value,
                    }
                ),
            }
        }
        puts = [self._put({"Item": self._entry(incident.incident_id, entry)}) for entry in entries]
        return self._table.transact([turn, *puts])

    def finish(self, incident: Incident, node: Node | None = None) -> bool:
        known = fields_of(incident)
        written = ("state", "ending", "summary", "closed_at", "has_only_restarted")
        changed = {name: value for name, value in known.items() if name in written}
        changed[names.INDEX_SORT_KEY] = self._sort_key(incident)
        sets = ", ".join(f"#{number} = :{number}" for number in range(len(changed)))
        update: Any = {
            "TableName": self._table.name,
            "Key": to_item({"pk": names.incident_pk(incident.incident_id), "sk": names.INCIDENT_SK}),
            "UpdateExpression": f"SET {sets}",
            "ExpressionAttributeNames": {f"#{number}": name for number, name in enumerate(changed)},
            "ExpressionAttributeValues": to_item({f":{at}": value for at, value in enumerate(changed.values())}),
        }
        if node is not None:
            return self._table.transact([{"Update": update}, self._put(_node_put(node))])
        self._table.client.update_item(**update)
        return True

    def _put(self, put: dict[str, Any]) -> dict[str, Any]:
        return {"Put": {"TableName": self._table.name, **put}}

    def _head(self, incident: Incident) -> Item:
        keys = {
            "pk": names.incident_pk(incident.incident_id),
            "sk": names.INCIDENT_SK,
            names.INDEX_PARTITION_KEY: names.pool_pk(incident.pool),
            names.INDEX_SORT_KEY: self._sort_key(incident),
        }
        return to_item({**keys, **fields_of(incident)})

    @staticmethod
    def _sort_key(incident: Incident) -> str:
        return "#".join(("incident", incident.state, *incident.place))

    @staticmethod
    def _entry(incident_id: str, entry: TimelineEntry) -> Item:
        keys = {"pk": names.incident_pk(incident_id), "sk": f"{names.TIMELINE_PREFIX}{entry.entry_id}"}
        return to_item({**keys, **fields_of_entry(entry)})


class DynamoOperationStore:
    """Implements OperationStore."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def get(self, owner: str, operation_id: str) -> Operation | None:
        item = self._table.get(names.operation_pk(owner), names.operation_sk(operation_id))
        return from_item(Operation, item) if item else None

    def save(self, operation: Operation) -> bool:
        keys = {"pk": names.operation_pk(operation.owner), "sk": names.operation_sk(operation.operation_id)}
        values = {**keys, **fields_of(replace(operation, version=operation.version + 1))}
        if operation.line is not None and operation.state is not OperationState.DELIVERED:
            values[names.INDEX_PARTITION_KEY] = names.line_pk(operation.line[0])
            values[names.INDEX_SORT_KEY] = f"{names.OPERATIONS_PREFIX}{operation.line[1]}"
        # The deadline of a job's watch is a year away, so a finished operation expires relative to its end.
        ended = operation.result.finished_at if operation.result_json else operation.deadline_at
        expires = min(ended, operation.deadline_at) + timedelta(days=OPERATION_KEPT_DAYS)
        item = to_item({**values, names.TTL_ATTRIBUTE: int(expires.timestamp())})
        return self._table.put(item, *versioned(operation.version))

    def open_of(self, owner: str) -> Sequence[Operation]:
        read = (from_item(Operation, item) for item in self._table.query(names.operation_pk(owner)))
        return [operation for operation in read if operation.state is not OperationState.DELIVERED]

    def queued(self, line: str) -> Sequence[Operation]:
        prefix = names.OPERATIONS_PREFIX
        items = self._table.query_index(names.INDEX, names.line_pk(line), prefix, kind=prefix)
        read = (from_item(Operation, item) for item in items)
        return [operation for operation in read if operation.state is not OperationState.DELIVERED]

    def behind(self, operation: Operation, most: int) -> Sequence[tuple[str, str]]:
        line, place = operation.line or ("", "")
        prefix = names.OPERATIONS_PREFIX
        # A page of a long queue would be a megabyte. Both bounds are inclusive: the first item is the operation itself.
        page = self._table.page_index(
            names.INDEX,
            names.line_pk(line),
            (f"{prefix}{place}", f"{prefix}~"),
            kind=prefix,
            limit=most + 1,
            fields=("owner", "operation_id"),
        )
        keys = [(item["owner"], item["operation_id"]) for item in map(plain, page)]
        return [key for key in keys if key != (operation.owner, operation.operation_id)][:most]
