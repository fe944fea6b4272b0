"""Reads public keys of nodes from the heartbeat table: one strongly consistent read for each node, then a cache."""

import base64
import binascii
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from nodeheal.adapters.aws.calls import throttles_named
from nodeheal.contract import names
from nodeheal.contract.agent_pod import AgentPod

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

# A key that a node has removed is accepted for this long.
FRESH_SECONDS = 300.0
# Minimum time between two reads of an item for a key that it lacks. A node may fill its item up to 400 KB, a hundred
# read units, and sign with a new key id each time. Events in between are retried later, after the next read.
LACKING_SECONDS = 10.0
NODES_KEPT = 4_096
KEY_CHARACTERS = 64  # in Base64: 44
KEYS_OF_ONE = 8  # a node has one, and at most three old ones


Kept = TypeVar("Kept")


@dataclass(frozen=True)
class _Read:
    at: float
    keys: Mapping[str, bytes]


class DynamoNodeKeys:
    """Implements NodeKeys. All keys of an item are read together; a missing key is looked up again soon, but not each
    time.
    """

    def __init__(
        self,
        client: "DynamoDBClient",
        table: str,
        place: Callable[[AgentPod], str | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`place`: asks the pod's cluster which machine it is on, and records that."""
        self._client = client
        self._table = table
        self._place = place
        self._monotonic = monotonic
        self._known: OrderedDict[str, _Read] = OrderedDict()
        # By machine: when its record was read, and which pods speak for it: the last one, and the one before.
        self._pods: OrderedDict[str, tuple[float, frozenset[str]]] = OrderedDict()
        self._asked: OrderedDict[str, float] = OrderedDict()  # by pod: when its cluster was

    def find(self, signer: str, key_id: str) -> bytes | None:
        now, read = self._monotonic(), self._known.get(signer)
        if read is None or now - read.at >= (FRESH_SECONDS if key_id in read.keys else LACKING_SECONDS):
            read = _Read(now, self._keys_of(signer))
            _keep(self._known, signer, read)
        return read.keys.get(key_id)

    def is_agent_of(self, machine_id: str, signer: str) -> bool:
        now, (read_at, pods) = self._monotonic(), self._pods.get(machine_id, (-math.inf, frozenset()))
        if now - read_at >= (FRESH_SECONDS if signer in pods else LACKING_SECONDS):
            item = self._item(f"{names.AGENT_POD_KEY}{machine_id}")
            pods = frozenset(item[name]["S"] for name in (names.AGENT_POD, names.AGENT_POD_BEFORE) if name in item)
            if signer not in pods and self._machine_of(signer, now) == machine_id:
                pods |= {signer}
            _keep(self._pods, machine_id, (now, pods))
        return signer in pods

    def _machine_of(self, signer: str, now: float) -> str | None:
        """Ask the pod's cluster, but not for each event: a node may sign any number, about any others."""
        pod = AgentPod.of_signer(signer)
        if pod is None or now - self._asked.get(signer, -math.inf) < LACKING_SECONDS:
            return None
        _keep(self._asked, signer, now)
        return self._place(pod)

    def _item(self, name: str) -> Mapping[str, Any]:
        with throttles_named("GetItem"):
            answer = self._client.get_item(
                TableName=self._table, Key={names.HEARTBEAT_KEY: {"S": name}}, ConsistentRead=True
            )
        return answer.get("Item", {})

    def _keys_of(self, signer: str) -> dict[str, bytes]:
        # The machine may have written anything there, which harms only itself.
        written = (
            (name.removeprefix(names.HEARTBEAT_KEY_PREFIX), _decoded(value.get("S", "")))
            for name, value in self._item(signer).items()
            if name.startswith(names.HEARTBEAT_KEY_PREFIX)
        )
        return dict(islice(((key_id, key) for key_id, key in written if key), KEYS_OF_ONE))


def _keep(known: "OrderedDict[str, Kept]", name: str, value: Kept) -> None:
    known[name] = value
    while len(known) > NODES_KEPT:
        known.popitem(last=False)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.partition(" ")[0][:KEY_CHARACTERS], validate=True)
    except (binascii.Error, ValueError):
        return b""
