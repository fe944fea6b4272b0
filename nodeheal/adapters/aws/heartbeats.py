"""Heartbeats over the machines' own table. What machines write is read with care: it is theirs alone, and unchecked."""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import names, words
from nodeheal.domain.fleet.liveness import Heartbeat

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

Item = Mapping[str, Mapping[str, Any]]

_FIELDS = {
    "#who": names.BEAT_KEY,
    "#at": names.BEAT_AT,
    "#every": names.BEAT_EVERY,
    "#boot": names.BEAT_BOOT,
    "#wanted": names.BEAT_WANTED,
}


class DynamoHeartbeats:
    """Heartbeats."""

    def __init__(self, client: "DynamoDBClient", table: str, roles: Collection[str] = ()) -> None:
        """`roles`: ids of the roles whose sessions AWS names after machines; others are left out. Empty: all."""
        self._client = client
        self._table = table
        self._roles = frozenset(roles)

    def newest(self) -> Mapping[str, Heartbeat]:
        return self._newest(self._scan())

    def of(self, machine_id: str) -> Heartbeat | None:
        # The key begins with the id of a role, which nobody here knows: DynamoDB looks through all, and sends one.
        found = self._scan(
            FilterExpression="contains(#who, :machine)", ExpressionAttributeValues={":machine": {"S": machine_id}}
        )
        return self._newest(found).get(machine_id)

    def want(self, beat: Heartbeat, every_seconds: float) -> None:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("UpdateItem"):
                self._client.update_item(
                    TableName=self._table,
                    Key={names.BEAT_KEY: {"S": beat.who}},
                    UpdateExpression="SET #wanted = :wanted",
                    ConditionExpression="attribute_exists(#who)",  # what is gone is not to come back by half
                    ExpressionAttributeNames={"#wanted": names.BEAT_WANTED, "#who": names.BEAT_KEY},
                    ExpressionAttributeValues={":wanted": {"N": f"{every_seconds:g}"}},
                )
        except ClientError as error:
            if code_of(error) != "ConditionalCheckFailedException":
                raise

    def _scan(self, **more: Any) -> Iterator[Item]:
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._table,
            ProjectionExpression=", ".join(_FIELDS),
            ExpressionAttributeNames=_FIELDS,
            **more,
        )
        with throttles_named("Scan"):
            for page in pages:
                yield from page["Items"]

    def _newest(self, items: Iterator[Item]) -> dict[str, Heartbeat]:
        """By machine. One that has been given another role has an item under each."""
        found: dict[str, Heartbeat] = {}
        for item in items:
            beat = _read(item)
            if beat is None or (self._roles and beat.role_id not in self._roles):
                continue
            if beat.machine_id not in found or found[beat.machine_id].at < beat.at:
                found[beat.machine_id] = beat
        return found


def _read(item: Item) -> Heartbeat | None:
    """The beat, or None for what is none: a machine may write anything into its item, to nobody's harm but its own."""
    try:
        boot = item[names.BEAT_BOOT]["S"]
        every = float(item[names.BEAT_EVERY]["N"])
        at = datetime.fromtimestamp(float(item[names.BEAT_AT]["N"]), UTC)
        wanted = float(item[names.BEAT_WANTED]["N"]) if names.BEAT_WANTED in item else None
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
    if not re.fullmatch(words.BOOT_ID, boot) or not math.isfinite(every):
        return None
    return Heartbeat(item[names.BEAT_KEY]["S"], boot, at, every, wanted)
