"""The signs of life: one small item of the node's own in DynamoDB, which IAM lets nobody else write.

Over the bus each would cost an event, two queue requests, a function run and three writes; this is one write.
"""

import http
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nodeheal.agent.caller import Caller, Stranger
from nodeheal.agent.signed_post import ACCESS_ERRORS, NoAnswer, SignedPost
from nodeheal.contract import names

# A machine that has said nothing for so long is in the record of its node, or of no interest.
KEPT_SECONDS = 7 * 86_400
# The control plane may ask for another interval: within these bounds, whoever wrote it.
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 3_600.0

_HEADERS = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810.UpdateItem"}
# The table is not there, or not yet: a control plane that is older than this agent.
_REFUSALS = (*ACCESS_ERRORS, "ResourceNotFoundException")


class NotBeaten(Exception):
    """The sign of life was not taken. `is_refusal`: repeating it will not help before somebody changes something."""

    def __init__(self, reason: str, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal


@dataclass(frozen=True)
class Beat:
    """What a sign of life says."""

    boot_id: str
    at: float  # seconds since the epoch
    every_seconds: float


def request(user_id: str, beat: Beat) -> dict[str, object]:
    """The item's update, which also reads what the control plane has left there for the node."""
    return {
        "TableName": names.HEARTBEATS_TABLE,
        "Key": {names.BEAT_KEY: {"S": user_id}},
        "UpdateExpression": "SET #at = :at, #every = :every, #boot = :boot, #until = :until",
        "ExpressionAttributeNames": {
            "#at": names.BEAT_AT,
            "#every": names.BEAT_EVERY,
            "#boot": names.BEAT_BOOT,
            "#until": names.TTL_ATTRIBUTE,
        },
        "ExpressionAttributeValues": {
            ":at": {"N": f"{beat.at:.3f}"},
            ":every": {"N": f"{beat.every_seconds:g}"},
            ":boot": {"S": beat.boot_id},
            ":until": {"N": str(int(beat.at) + KEPT_SECONDS)},
        },
        "ReturnValues": "ALL_NEW",  # costs nothing, and saves a read
    }


class HeartbeatItem:
    """The item of this machine, which must be who its credentials say. Not safe to share between threads."""

    def __init__(self, machine_id: str, table: SignedPost, caller: Caller) -> None:
        self._machine_id = machine_id
        self._table = table
        self._caller = caller

    def write(self, beat: Beat) -> float | None:
        """Give a sign of life; the interval that the control plane asks for, if it does. Raises NotBeaten."""
        try:
            status, raw = self._ask(self._own_name(), beat)
        except (Stranger, NoAnswer) as error:
            raise NotBeaten(str(error), error.is_refusal) from error
        answer = _parsed(raw)
        if status == http.HTTPStatus.OK:
            return _wanted(answer)
        code = str(answer.get("__type", "")).rpartition("#")[2]
        is_refusal = code in _REFUSALS or status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)
        if is_refusal:
            self._caller.forget()
            self._table.forget_credentials()
        message = answer.get("message") or answer.get("Message") or ""
        raise NotBeaten(f"{status} {code} {message}".strip(), is_refusal)

    def _ask(self, user_id: str, beat: Beat) -> tuple[int, bytes]:
        """By the table's time: a node whose clock was set back would be taken for silent, for all that it says."""

        def body() -> bytes:
            told = replace(beat, at=beat.at + self._table.ahead.total_seconds())
            return json.dumps(request(user_id, told)).encode()

        return self._table.ask(_HEADERS, body)

    def _own_name(self) -> str:
        """Whose item it is. Raises Stranger, NotBeaten: under another name nobody would look for it."""
        user_id = self._caller.identity().user_id
        if user_id.rpartition(":")[2] != self._machine_id:
            self._caller.forget()
            raise NotBeaten(f"the credentials here are {user_id}'s, not {self._machine_id}'s", is_refusal=True)
        return user_id

    def close(self) -> None:
        """Hang up."""
        self._table.close()
        self._caller.close()


def _parsed(raw: bytes) -> Mapping[str, object]:
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _wanted(answer: Mapping[str, object]) -> float | None:
    """What stands in the item, bounded. None: nothing that could be an interval."""
    attributes = answer.get("Attributes")
    value = attributes.get(names.BEAT_WANTED) if isinstance(attributes, dict) else None
    try:
        seconds = float(value["N"]) if isinstance(value, dict) else math.nan
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS) if math.isfinite(seconds) else None
