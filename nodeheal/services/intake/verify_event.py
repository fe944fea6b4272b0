"""Accepts an event only if the node that it is about has signed it. See ADR 49."""

from collections.abc import Collection
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from nodeheal.contract.signature import EARLY_SECONDS, KEPT_SECONDS, PUBLIC_KEY_BYTES, key_id_of, signed_bytes
from nodeheal.contract.signed_event import SignedEvent, SignedText
from nodeheal.domain.errors import NotAccepted

NODE_ID_CHARACTERS = 128


class Forged(Exception):
    """The event is not proven to come from the node that it is about. The message says why."""


class NodeKeys(Protocol):
    """The public keys that nodes have written into their own items, which nobody else can write."""

    def find(self, signer: str, key_id: str) -> bytes | None:
        """The key; None where the item has none by that name now."""

    def is_agent_of(self, machine_id: str, signer: str) -> bool:
        """Whether its cluster says that this pod runs the agent on this machine. Raises NotAccepted."""


def verify(event: SignedEvent, detail_type: str, keys: NodeKeys, roles: Collection[str], now: float) -> SignedText:
    """What the node has signed. `roles`: ids of the roles whose sessions AWS names after machines.

    Raises Forged; ValidationError where the signed text is no event; NotAccepted where the key is not there yet.
    """
    if event.pod is None and event.role_id not in roles:
        raise Forged(f"{event.signer} is not a session of a node role that the settings name (node_role_ids)")
    public_key = keys.find(event.signer, event.key_id)
    if public_key is None:
        # A node publishes its key before it signs with it. So the table is new, or was restored.
        raise NotAccepted(f"{event.signer} has not published the key {event.key_id}; its event is taken again later")
    try:
        if len(public_key) != PUBLIC_KEY_BYTES or key_id_of(public_key) != event.key_id:
            raise Forged(f"{event.signer} has published something else than a key as {event.key_id}")
        Ed25519PublicKey.from_public_bytes(public_key).verify(event.signature, signed_bytes(event.signed))
    except (InvalidSignature, ValueError) as error:
        raise Forged(f"the signature is not {event.signer}'s") from error
    text = SignedText.model_validate_json(event.signed)
    if text.detail_type != detail_type:
        raise Forged(f"{event.signer} signed an event of the kind {text.detail_type!r}, which came as {detail_type!r}")
    if not now - KEPT_SECONDS <= text.signed_at <= now + EARLY_SECONDS:
        raise Forged(f"{event.signer} signed the event at {text.signed_at}, and now it is {now:.0f}")
    node_id = str(text.event.get("node_id"))
    if event.pod is None and node_id != event.machine_id:
        raise Forged(f"{event.machine_id} signed an event about another node")
    if event.pod is not None and (text.event.get("cluster") != event.pod.cluster or len(node_id) > NODE_ID_CHARACTERS):
        raise Forged(f"{event.signer} signed an event about a node of another cluster, or about none")
    if event.pod is not None and not keys.is_agent_of(node_id, event.signer):
        # Its cluster may not know the pod yet, or no more. What the pod of another machine has signed is no better.
        raise NotAccepted(f"{event.signer} is not known as the agent of {node_id[:64]}; its event is taken again later")
    return text
