"""The ports over DynamoDB's tables, and their twins in memory."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from nodeheal.adapters.aws.fleet_index import DynamoFleetIndex
from nodeheal.adapters.aws.heartbeats import DynamoHeartbeats
from nodeheal.adapters.aws.items import Item, Table
from nodeheal.adapters.aws.jobs import DynamoJobFindings, DynamoJobNotes, DynamoJobStore
from nodeheal.adapters.aws.limits import DynamoAttemptLedger, DynamoPoolStore
from nodeheal.adapters.aws.pauses import DynamoPauseStore
from nodeheal.adapters.aws.records_epoch import DynamoRecordsEpoch
from nodeheal.adapters.aws.stores import DynamoHardwareStore, DynamoIncidentStore, DynamoNodeStore, DynamoOperationStore
from nodeheal.contract import names
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.ports import Ports
from tests.support.builders import NOW, FrozenClock, memory_ports, xid


class KnownOperations(DynamoOperationStore):
    """Also keeps what was saved by hand, for the worlds of tests that look for what was asked."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.operations: dict[tuple[str, str], Operation] = {}

    def save(self, operation: Operation) -> bool:
        is_saved = super().save(operation)
        if is_saved:
            self.operations[operation.owner, operation.operation_id] = operation
        return is_saved

    def all_open(self) -> list[Operation]:
        return [one for one in self.operations.values() if one.state is not OperationState.DELIVERED]


def dynamo_ports(clock: FrozenClock, region: str = "us-east-1") -> Ports:
    client = boto3.client("dynamodb", region_name=region)
    keys = ("pk", "sk", names.INDEX_PARTITION_KEY, names.INDEX_SORT_KEY)
    client.create_table(
        TableName="state",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": names.INDEX,
                "KeySchema": [
                    {"AttributeName": names.INDEX_PARTITION_KEY, "KeyType": "HASH"},
                    {"AttributeName": names.INDEX_SORT_KEY, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    client.create_table(
        TableName=names.HEARTBEATS_TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": names.HEARTBEAT_KEY, "AttributeType": "S"}],
        KeySchema=[{"AttributeName": names.HEARTBEAT_KEY, "KeyType": "HASH"}],
    )
    table = Table(client, "state")
    return replace(
        memory_ports(clock),
        nodes=DynamoNodeStore(table),
        hardware=DynamoHardwareStore(table),
        operations=KnownOperations(table),
        incidents=DynamoIncidentStore(table),
        attempts=DynamoAttemptLedger(table, clock),
        pools=DynamoPoolStore(table),
        pauses=DynamoPauseStore(table),
        jobs=DynamoJobStore(table),
        job_notes=DynamoJobNotes(table),
        job_findings=DynamoJobFindings(table),
        fleet_index=DynamoFleetIndex(table),
        heartbeats=DynamoHeartbeats(client, names.HEARTBEATS_TABLE),
        epoch=DynamoRecordsEpoch(table, client, names.HEARTBEATS_TABLE),
    )


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=["memory", "dynamodb"])
def ports(request: pytest.FixtureRequest, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ports]:
    if request.param == "memory":
        yield memory_ports(clock)
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield dynamo_ports(clock)


def new_incident(**changes: object) -> Incident:
    event = xid()
    incident = Incident(incident_id_of(event), event.node_id, event.pool, event, NOW, "policy-1")
    return replace(incident, **changes)  # type: ignore[arg-type]


def client_of(ports: Ports) -> Any:
    assert isinstance(ports.heartbeats, DynamoHeartbeats)
    return ports.heartbeats._client


class LateTable(Table):
    """Reads what was there when `remember` was called, as many times as it is told; then what is there."""

    def remember(self, pk: str, sk: str, reads: int = 1) -> None:
        self._old_item = super().get(pk, sk)
        self._old_items = list(super().query(pk, names.SLOT_PREFIX))
        self._reads = reads

    def _is_late(self) -> bool:
        self._reads -= 1
        return self._reads >= 0

    def get(self, pk: str, sk: str) -> Item | None:
        return self._old_item if self._is_late() else super().get(pk, sk)

    def query(self, pk: str, prefix: str = "") -> Iterator[Item]:
        return iter(self._old_items) if self._is_late() else super().query(pk, prefix)
