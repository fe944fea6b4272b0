"""Public keys of nodes, from the heartbeat table: one strongly consistent read a key, then from memory."""

import base64
import binascii
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from nodeheal.adapters.aws.calls import throttles_named
from nodeheal.contract import names

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

# A key that a node has taken back is believed for so long after.
FRESH_SECONDS = 300.0
KEYS_KEPT = 4_096


class DynamoNodeKeys:
    """NodeKeys. What is not there is asked again each time: it may be published in this moment."""

    def __init__(self, client: "DynamoDBClient", table: str) -> None:
        self._client = client
        self._table = table
        self._known: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()

    def find(self, signer: str, key_id: str) -> bytes | None:
        known = self._known.get((signer, key_id))
        if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        key = self._read(signer, key_id)
        if key is not None:
            self._known[signer, key_id] = (time.monotonic(), key)
            while len(self._known) > KEYS_KEPT:
                self._known.popitem(last=False)
        return key

    def _read(self, signer: str, key_id: str) -> bytes | None:
        attribute = names.BEAT_KEY_PREFIX + key_id
        with throttles_named("GetItem"):
            answer = self._client.get_item(
                TableName=self._table,
                Key={names.BEAT_KEY: {"S": signer}},
                ConsistentRead=True,
                ProjectionExpression="#key",
                ExpressionAttributeNames={"#key": attribute},
            )
        # The machine may have written anything there, to nobody's harm but its own.
        written = answer.get("Item", {}).get(attribute, {}).get("S", "")
        try:
            return base64.b64decode(written.partition(" ")[0], validate=True) or None
        except (binascii.Error, ValueError):
            return None
