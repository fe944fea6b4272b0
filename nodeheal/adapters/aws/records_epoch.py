"""Keeps the mark of the records twice: in their table, and in the table of heartbeats, which is never restored."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.adapters.aws.items import Item, Table, plain, to_item
from nodeheal.contract import names
from nodeheal.domain.records_epoch import Epoch

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

_AT = "renewed_at"


class DynamoRecordsEpoch:
    """Implements RecordsEpoch."""

    def __init__(self, rows: Table, client: "DynamoDBClient", outside: str) -> None:
        """`outside`: the other table."""
        self._rows, self._client, self._outside = rows, client, outside

    def read(self) -> Epoch:
        key = {names.HEARTBEAT_KEY: {"S": names.EPOCH_KEY}}
        with throttles_named("GetItem"):
            outside = self._client.get_item(TableName=self._outside, Key=key, ConsistentRead=True).get("Item")
        # Last: a renewal between the two reads makes the table's mark look newer, and not older.
        return Epoch(in_table=_mark(self._rows.get(names.SWEEP_PK, names.EPOCH_SK)), outside=_mark(outside))

    def renew(self, known: Epoch, at: datetime) -> bool:
        now = _text(at)
        is_new = known.in_table is None
        condition = "attribute_not_exists(pk)" if is_new else f"{_AT} = :known"
        values = {} if known.in_table is None else {":known": _text(known.in_table)}
        if not self._rows.put(to_item({"pk": names.SWEEP_PK, "sk": names.EPOCH_SK, _AT: now}), condition, values):
            return False
        self._mark_outside(now)
        return True

    def _mark_outside(self, now: str) -> None:
        """A run that is overtaken leaves the newer mark."""
        from botocore.exceptions import ClientError

        try:
            with throttles_named("UpdateItem"):
                self._client.update_item(
                    TableName=self._outside,
                    Key={names.HEARTBEAT_KEY: {"S": names.EPOCH_KEY}},
                    UpdateExpression=f"SET {_AT} = :now",
                    ConditionExpression=f"attribute_not_exists({_AT}) OR {_AT} < :now",
                    ExpressionAttributeValues={":now": {"S": now}},
                )
        except ClientError as error:
            if code_of(error) != "ConditionalCheckFailedException":
                raise


def _mark(item: Item | None) -> datetime | None:
    return datetime.fromisoformat(plain(item)[_AT]) if item else None


def _text(at: datetime) -> str:
    """Format a time so that its text sorts by time."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")
