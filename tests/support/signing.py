"""Machines that sign what they report, and the keys that they have published."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.names import NODE_HEALTH_REPORTED
from nodeheal.contract.signature import key_id_of, signed_bytes, signed_text
from nodeheal.contract.signed_event import SignedEvent
from tests.support.builders import NOW

ROLE = "AROAEXAMPLEEXAMPLE00"


@dataclass
class Keys:
    """NodeKeys in memory."""

    by_name: dict[tuple[str, str], bytes] = field(default_factory=dict)
    pods: dict[str, str] = field(default_factory=dict)  # by machine

    def find(self, signer: str, key_id: str) -> bytes | None:
        return self.by_name.get((signer, key_id))

    def is_agent_of(self, machine_id: str, signer: str) -> bool:
        return self.pods.get(machine_id) == signer


class Machine:
    """A machine that signs, and has published its key in its own item."""

    def __init__(self, node_id: str, keys: Keys, role: str = ROLE, pod: AgentPod | None = None) -> None:
        self.private = Ed25519PrivateKey.generate()
        self.public = self.private.public_key().public_bytes_raw()
        self.signer = f"{role}:{node_id}" if pod is None else pod.signer
        keys.by_name[self.signer, key_id_of(self.public)] = self.public

    def signs(
        self, event: Mapping[str, Any], kind: str = NODE_HEALTH_REPORTED, at: float | None = None, **more: Any
    ) -> SignedEvent:
        return SignedEvent.model_validate(self.envelope(event, kind, at, **more))

    def envelope(
        self, event: Mapping[str, Any], kind: str = NODE_HEALTH_REPORTED, at: float | None = None, **more: Any
    ) -> dict[str, Any]:
        """The event as it travels."""
        text = signed_text(kind, json.dumps(event), NOW.timestamp() if at is None else at)
        envelope = {
            "signed": text,
            "signer": self.signer,
            "key_id": key_id_of(self.public),
            "signature": b64encode(self.private.sign(signed_bytes(text))).decode(),
        }
        return {**envelope, **more}


KEYS = Keys()


def signed_by(node_id: str, event: Mapping[str, Any], kind: str = NODE_HEALTH_REPORTED) -> dict[str, Any]:
    """The event as this machine sent it at `NOW`; its key is among `KEYS`."""
    return Machine(node_id, KEYS).envelope(event, kind)
