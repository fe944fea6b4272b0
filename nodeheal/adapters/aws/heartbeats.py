"""Implements Heartbeats over the machines' own table. Its items are validated, since machines write them unchecked."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract import agent_pod, names, words
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.training import NodeTraining, read_training
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import Heartbeat

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

_KEYS_AT_ONCE = 100  # the limit of BatchGetItem
_CALLS_MORE = 5  # for keys that an answer leaves out: under load, or beyond 16 MB
Item = Mapping[str, Mapping[str, Any]]

_FIELDS = {
    "#who": names.HEARTBEAT_KEY,
    "#at": names.HEARTBEAT_AT,
    "#every": names.HEARTBEAT_EVERY,
    "#boot": names.HEARTBEAT_BOOT,
    "#wanted": names.HEARTBEAT_WANTED,
    "#steps": names.HEARTBEAT_STEPS,
    "#pod": names.AGENT_POD,
    "#before": names.AGENT_POD_BEFORE,
}


class DynamoHeartbeats:
    """Implements Heartbeats."""

    def __init__(
        self,
        client: "DynamoDBClient",
        table: str,
        roles: Collection[str] = (),
        find_roles: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`roles`: ids of the roles whose session names AWS sets to machine ids; other items are ignored. Empty: all.

        `find_roles`: looks them up where some machines' heartbeats are read without them; empty: they are not known.
        """
        self._client = client
        self._table = table
        self._roles = frozenset(roles)
        self._find_roles = find_roles

    def newest(self) -> Mapping[str, Heartbeat]:
        return self._newest(self._scan())

    def of(self, machine_ids: Collection[str]) -> Mapping[str, Heartbeat]:
        wanted = frozenset(machine_ids)
        if not wanted:
            return {}
        roles = self._roles or self._find_roles()
        if not roles:  # the key begins with one
            return {name: heartbeat for name, heartbeat in self.newest().items() if name in wanted}
        own = [f"{role}:{name}" for name in sorted(wanted) for role in sorted(roles)]
        items = list(self._items([*own, *(f"{names.AGENT_POD_KEY}{name}" for name in sorted(wanted))]))
        return self._newest([*items, *self._items(list({pod: None for item in items for pod in _placed(item)}))])

    def place(self, pod: AgentPod, machine_id: str) -> None:
        self._update(
            f"{names.AGENT_POD_KEY}{machine_id}",
            UpdateExpression="SET #before = if_not_exists(#pod, :pod), #pod = :pod",
            ConditionExpression="attribute_not_exists(#pod) OR #pod <> :pod",
            ExpressionAttributeNames={"#pod": names.AGENT_POD, "#before": names.AGENT_POD_BEFORE},
            ExpressionAttributeValues={":pod": {"S": pod.signer}},
        )

    def want(self, heartbeat: Heartbeat, every_seconds: float) -> None:
        self._update(
            heartbeat.who,
            UpdateExpression="SET #wanted = :wanted",
            ConditionExpression="attribute_exists(#who)",  # a deleted item must not be partly recreated
            ExpressionAttributeNames={"#wanted": names.HEARTBEAT_WANTED, "#who": names.HEARTBEAT_KEY},
            ExpressionAttributeValues={":wanted": {"N": f"{every_seconds:g}"}},
        )

    def _update(self, name: str, **change: Any) -> None:
        """Update an item if its condition holds."""
        from botocore.exceptions import ClientError

        try:
            with throttles_named("UpdateItem"):
                self._client.update_item(TableName=self._table, Key={names.HEARTBEAT_KEY: {"S": name}}, **change)
        except ClientError as error:
            if code_of(error) != "ConditionalCheckFailedException":
                raise

    def _items(self, keys: Sequence[str]) -> Iterator[Item]:
        """Yield the items of these keys. Raises NotAccepted where DynamoDB leaves some out again and again."""
        left, calls = [{names.HEARTBEAT_KEY: {"S": key}} for key in keys], 0
        while left:
            if calls > len(keys) // _KEYS_AT_ONCE + _CALLS_MORE:
                raise NotAccepted(f"BatchGetItem: {len(left)} heartbeats are left out")
            request = {
                self._table: {
                    "Keys": left[:_KEYS_AT_ONCE],
                    "ProjectionExpression": ", ".join(_FIELDS),
                    "ExpressionAttributeNames": _FIELDS,
                }
            }
            with throttles_named("BatchGetItem"):
                answer: Any = self._client.batch_get_item(RequestItems=cast("Any", request))
            yield from answer["Responses"].get(self._table, ())
            left, calls = (
                [*answer["UnprocessedKeys"].get(self._table, {}).get("Keys", ()), *left[_KEYS_AT_ONCE:]],
                calls + 1,
            )

    def _scan(self) -> Iterator[Item]:
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._table,
            ProjectionExpression=", ".join(_FIELDS),
            ExpressionAttributeNames=_FIELDS,
        )
        with throttles_named("Scan"):
            for page in pages:
                yield from page["Items"]

    def _newest(self, items: Iterable[Item]) -> dict[str, Heartbeat]:
        """Return the newest by machine, which has an item under each role that it had, and under each of its pods."""
        newest: dict[str, Heartbeat] = {}
        machines: dict[str, str] = {}  # by the item of the pod
        of_pods: list[Heartbeat] = []
        for item in items:
            machines |= _placed(item)
            heartbeat = _read(item)
            if heartbeat is not None and heartbeat.who.startswith(agent_pod.PREFIX):
                of_pods.append(heartbeat)
            elif heartbeat is not None and (not self._roles or heartbeat.role_id in self._roles):
                _keep_newer(newest, heartbeat.machine_id, heartbeat)
        for heartbeat in of_pods:
            if machine := machines.get(heartbeat.who):
                _keep_newer(newest, machine, replace(heartbeat, pod_machine=machine))
        return newest


def _placed(item: Item) -> dict[str, str]:
    """Return the machine by the items of its pods; empty where this is no record of ours, whatever it holds."""
    name = item[names.HEARTBEAT_KEY]["S"]
    if not name.startswith(names.AGENT_POD_KEY):
        return {}
    pods = (item[names.AGENT_POD]["S"], item[names.AGENT_POD_BEFORE]["S"])
    return dict.fromkeys(pods, name.removeprefix(names.AGENT_POD_KEY))


def _keep_newer(newest: dict[str, Heartbeat], key: str, heartbeat: Heartbeat) -> None:
    if key not in newest or newest[key].at < heartbeat.at:
        newest[key] = heartbeat


def _read(item: Item) -> Heartbeat | None:
    """Parse a heartbeat, or None where the item is not valid: a machine may write anything into its item."""
    try:
        boot = item[names.HEARTBEAT_BOOT]["S"]
        every = float(item[names.HEARTBEAT_EVERY]["N"])
        at = datetime.fromtimestamp(float(item[names.HEARTBEAT_AT]["N"]), UTC)
        wanted = float(item[names.HEARTBEAT_WANTED]["N"]) if names.HEARTBEAT_WANTED in item else None
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
    if not re.fullmatch(words.BOOT_ID, boot) or not math.isfinite(every):
        return None
    return Heartbeat(item[names.HEARTBEAT_KEY]["S"], boot, at, every, wanted, _trainings(item))


def _trainings(item: Item) -> dict[str, NodeTraining]:
    """Return how runs train there; what does not have that form is left out."""
    text = item.get(names.HEARTBEAT_STEPS, {}).get("S", "")
    return read_training(text) if isinstance(text, str) else {}
