"""Writes heartbeats: one small item for each node in DynamoDB, which IAM lets only that node write.

Over the bus each would cost an event, two queue requests, a function run and three writes; this is one write.
"""

import http
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeheal.agent.identity.sts_identity import IdentityError, StsIdentity
from nodeheal.agent.transport.aws_client import ACCESS_ERRORS, AwsClient, RequestFailed
from nodeheal.contract import names
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.json_text import read_json
from nodeheal.contract.signature import KEPT_SECONDS
from nodeheal.contract.training import NodeTraining, write_training

# Old public keys that stay in the item, newest first. A key is replaced every 90 days, so one is enough.
OLD_KEYS = 3
# The control plane may request another interval, within these bounds.
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 3_600.0

_HEADERS = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810.UpdateItem"}
# The table does not exist (yet): the control plane is older than this agent.
_REFUSALS = (*ACCESS_ERRORS, "ResourceNotFoundException")


class HeartbeatRejected(Exception):
    """The heartbeat was not accepted. `is_refusal`: retries do not help until somebody changes something."""

    def __init__(self, reason: str, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal


@dataclass(frozen=True)
class PublicKey:
    """The public half of the key that signs this node's events."""

    key_id: str
    text: str  # 32 bytes in Base64
    created_at: int  # seconds since the epoch

    @property
    def attribute(self) -> str:
        """The item's attribute for the key."""
        return names.HEARTBEAT_KEY_PREFIX + self.key_id

    @property
    def value(self) -> dict[str, str]:
        """The value of the attribute."""
        return {"S": f"{self.text} {self.created_at}"}


@dataclass(frozen=True)
class HeartbeatContent:
    """The content of a heartbeat."""

    boot_id: str
    at: float  # seconds since the epoch
    every_seconds: float
    key: PublicKey
    trainings: Sequence[NodeTraining] = ()  # how runs train here, the newest first


def request(user_id: str, heartbeat: HeartbeatContent) -> dict[str, object]:
    """Build the item's update. It also returns what the control plane has stored there for the node."""
    attributes = {
        names.HEARTBEAT_AT: {"N": f"{heartbeat.at:.3f}"},
        names.HEARTBEAT_EVERY: {"N": f"{heartbeat.every_seconds:g}"},
        names.HEARTBEAT_BOOT: {"S": heartbeat.boot_id},
        names.HEARTBEAT_STEPS: {"S": write_training(heartbeat.trainings)},
        names.TTL_ATTRIBUTE: _until(heartbeat.at),
        heartbeat.key.attribute: heartbeat.key.value,
    }
    return _update(user_id, attributes)


def publication(user_id: str, key: PublicKey, at: float, old: Sequence[str] = ()) -> dict[str, object]:
    """Build the update that publishes a key, and removes old keys whose signatures can no longer arrive."""
    return _update(user_id, {key.attribute: key.value, names.TTL_ATTRIBUTE: _until(at)}, old)


def _update(user_id: str, attributes: Mapping[str, object], removed: Sequence[str] = ()) -> dict[str, object]:
    change = "SET " + ", ".join(f"#{name} = :{name}" for name in attributes)
    if removed:
        change += " REMOVE " + ", ".join(f"#{name}" for name in removed)
    return {
        "TableName": names.HEARTBEATS_TABLE,
        "Key": {names.HEARTBEAT_KEY: {"S": user_id}},
        "UpdateExpression": change,
        "ExpressionAttributeNames": {f"#{name}": name for name in (*attributes, *removed)},
        "ExpressionAttributeValues": {f":{name}": value for name, value in attributes.items()},
        "ReturnValues": "ALL_NEW",  # costs nothing, and saves a read
    }


def _until(at: float) -> dict[str, str]:
    return {"N": str(int(at) + KEPT_SECONDS)}


class HeartbeatItem:
    """The item of this machine, which must match the identity of its credentials, or that of its agent's pod, which IAM
    matches. Not safe to share between threads.
    """

    def __init__(self, machine_id: str, table: AwsClient, caller: StsIdentity, pod: AgentPod | None = None) -> None:
        self._machine_id = machine_id
        self._pod = pod
        self._table = table
        self._caller = caller

    def write(self, heartbeat: HeartbeatContent) -> float | None:
        """Write a heartbeat; returns the interval that the control plane requests, or None. Raises HeartbeatRejected.

        It is dated by the service's clock: a node whose clock was set back would look silent.
        """

        def worded(user_id: str, ahead: float) -> dict[str, object]:
            return request(user_id, replace(heartbeat, at=heartbeat.at + ahead))

        return _wanted(self._update(worded))

    def publish(self, key: PublicKey, now: float) -> str:
        """Write the public key into the item and remove expired keys. Returns the item's name. Raises
        HeartbeatRejected.
        """
        old: list[str] = []

        def worded(user_id: str, ahead: float) -> dict[str, object]:
            return publication(user_id, key, now + ahead, old)

        old += _outlived(self._update(worded), key, now)
        if old:
            self._update(worded)
        return self.name()

    def _update(self, worded: Callable[[str, float], dict[str, object]]) -> Mapping[str, object]:
        """Call DynamoDB and return its answer. Raises HeartbeatRejected."""

        def body() -> bytes:
            return json.dumps(worded(user_id, self._table.ahead.total_seconds())).encode()

        try:
            user_id = self.name()
            status, raw = self._table.ask(_HEADERS, body)
        except RequestFailed as error:
            raise HeartbeatRejected(str(error), error.is_refusal) from error
        answer = _parsed(raw)
        if status == http.HTTPStatus.OK:
            return answer
        code = str(answer.get("__type", "")).rpartition("#")[2]
        is_refusal = code in _REFUSALS or status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)
        if is_refusal:
            self._caller.forget()
            self._table.forget_credentials()
        message = answer.get("message") or answer.get("Message") or ""
        raise HeartbeatRejected(f"{status} {code} {message}".strip(), is_refusal)

    def name(self) -> str:
        """Return the name of this node's item. Raises HeartbeatRejected, also where the credentials are another
        machine's: the control plane would not read another item.
        """
        if self._pod is not None:
            return self._pod.signer
        try:
            user_id = self._caller.identity().user_id
        except IdentityError as error:
            raise HeartbeatRejected(str(error), error.is_refusal) from error
        if user_id.rpartition(":")[2] != self._machine_id:
            self._caller.forget()
            raise HeartbeatRejected(f"the credentials here are {user_id}'s, not {self._machine_id}'s", is_refusal=True)
        return user_id

    def close(self) -> None:
        """Close the connections."""
        self._table.close()
        self._caller.close()


def _parsed(raw: bytes) -> Mapping[str, object]:
    try:
        answer = read_json(raw)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _outlived(answer: Mapping[str, object], newest: PublicKey, now: float) -> list[str]:
    """Return the attributes of keys replaced so long ago that no event signed with them can arrive any more. The number
    of remaining keys is bounded.
    """
    attributes = answer.get("Attributes")
    others = {
        name: _made_at(value)
        for name, value in (attributes.items() if isinstance(attributes, dict) else ())
        if name.startswith(names.HEARTBEAT_KEY_PREFIX) and name != newest.attribute
    }
    by_age = sorted(others, key=lambda name: others[name], reverse=True)
    replaced_at = [newest.created_at, *(others[name] for name in by_age)]
    over = [name for name, end in zip(by_age, replaced_at, strict=False) if now - end > KEPT_SECONDS]
    return sorted({*over, *by_age[OLD_KEYS:]})


def _made_at(value: object) -> float:
    try:
        return float(value["S"].split()[1]) if isinstance(value, dict) else 0.0
    except (KeyError, IndexError, AttributeError, ValueError):
        return 0.0


def _wanted(answer: Mapping[str, object]) -> float | None:
    """Return the requested interval, bounded. None: the item has no valid one."""
    attributes = answer.get("Attributes")
    value = attributes.get(names.HEARTBEAT_WANTED) if isinstance(attributes, dict) else None
    try:
        seconds = float(value["N"]) if isinstance(value, dict) else math.nan
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS) if math.isfinite(seconds) else None
