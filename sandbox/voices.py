"""Sends events in the name of nodes without agents: each is signed with a key in that node's own item."""

import base64
import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nodeheal.adapters.aws.items import Table
from nodeheal.adapters.aws.stores import DynamoNodeStore
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.signature import key_id_of, signed_bytes, signed_text
from nodeheal.contract.vocabulary import NodeState, Provider, SchedulerKind
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node import NO_BOOT_REPORTED, Node

if TYPE_CHECKING:
    from sandbox.client import Sandbox


class Voices:
    """The sender of one sandbox. With an administrator's rights, which no node has, it writes keys into any node's
    item.
    """

    def __init__(self, sandbox: "Sandbox") -> None:
        self._sandbox = sandbox
        self._keys: dict[str, Ed25519PrivateKey] = {}
        self._role_id = ""

    def enrols(self, node_id: str, pool: str = "demo") -> None:
        """Record a node without a machine, as `nodes enroll` would: no registry has a tag of it."""
        now = datetime.now(UTC)
        announced = Node(
            node_id=node_id,
            cluster=Cluster(SchedulerKind.ECS, self._sandbox.cluster),
            pool=pool,
            provider=Provider.hybrid,
            instance_id=node_id,
            boot_id=NO_BOOT_REPORTED,
            booted_at=now - timedelta(days=1),
            last_seen=now,
            state=NodeState.ENROLLED,
        )
        store = DynamoNodeStore(Table(self._sandbox.client("dynamodb"), self._sandbox.outputs["TableName"]))
        store.save(announced)  # an existing one stays as it is

    def says(self, *events: HealthEvent) -> None:
        """Put events on the bus as their nodes' agents would."""
        for event in events:
            self.puts(event.node_id, names.NODE_HEALTH_REPORTED, event.model_dump_json())

    def puts(self, node_id: str, detail_type: str, event_json: str) -> None:
        """Put one event on the bus, signed by this node, with any content."""
        detail = self.signed(node_id, detail_type, event_json)
        entry = {"Source": names.AGENT_SOURCE, "DetailType": detail_type, "Detail": detail}
        bus = self._sandbox.outputs["BusName"]
        answer = self._sandbox.client("events").put_events(Entries=[{**entry, "EventBusName": bus}])
        if answer["FailedEntryCount"]:
            raise RuntimeError(f"the bus refuses an event of {node_id}: {answer['Entries']}")

    def signed(self, node_id: str, detail_type: str, event_json: str) -> str:
        """Return the event in its transmitted form."""
        private, signer = self._key(node_id), f"{self._node_role_id()}:{node_id}"
        text = signed_text(detail_type, event_json, time.time())
        envelope = {
            "signed": text,
            "signer": signer,
            "key_id": key_id_of(private.public_key().public_bytes_raw()),
            "signature": base64.b64encode(private.sign(signed_bytes(text))).decode(),
        }
        return json.dumps(envelope)

    def _key(self, node_id: str) -> Ed25519PrivateKey:
        if node_id not in self._keys:
            private = Ed25519PrivateKey.generate()
            public = private.public_key().public_bytes_raw()
            self._sandbox.client("dynamodb").update_item(
                TableName=names.HEARTBEATS_TABLE,
                Key={names.HEARTBEAT_KEY: {"S": f"{self._node_role_id()}:{node_id}"}},
                UpdateExpression="SET #key = :key",
                ExpressionAttributeNames={"#key": names.HEARTBEAT_KEY_PREFIX + key_id_of(public)},
                ExpressionAttributeValues={":key": {"S": f"{base64.b64encode(public).decode()} {time.time():.0f}"}},
            )
            self._keys[node_id] = private
        return self._keys[node_id]

    def _node_role_id(self) -> str:
        if not self._role_id:
            name = self._sandbox.outputs["NodeRoleArn"].rsplit("/", 1)[-1]
            self._role_id = self._sandbox.client("iam").get_role(RoleName=name)["Role"]["RoleId"]
        return self._role_id
