"""Signs this node's events with a key that never leaves it; the public key is in the node's heartbeat item. See ADR 49.

The daemon and root's commands share one key file. Only the daemon replaces the key. The file names its node: a disk may
be copied to another machine, and a hybrid machine registered again.
"""

import base64
import json
import logging
import math
import os
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.file_owner import as_owner_of
from nodeheal.agent.runtime.safe_files import open_file, replace_file
from nodeheal.agent.transport.heartbeat_client import HeartbeatRejected, PublicKey
from nodeheal.contract.signature import key_id_of, signed_bytes, signed_text

FILE_NAME = "signing-key.json"
SECRET_BYTES = 32
FILE_BYTES = 4_096
MODE = 0o600
ROTATE_SECONDS = 90 * 86_400
# The item may be lost without the node's knowledge, so the key is published again each day. If the table is out of
# reach, an older publication remains valid until its item expires.
PUBLISH_AGAIN_SECONDS = 86_400
PUBLISHED_FOR_SECONDS = 10 * 86_400

logger = logging.getLogger(__name__)


class NotPublished(Exception):
    """The public key is not in the node's item, so nobody could verify a signature."""

    def __init__(self, reason: str, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal


class Signs(Protocol):
    """Signs events for a sender."""

    def prepare(self) -> None:
        """Ensure that signatures made now can be verified. Raises NotPublished."""

    def sign(self, detail_type: str, event_json: str, signed_at: float) -> str:
        """Return the event in its transmitted form."""

    def close(self) -> None:
        """Close the connections."""


class KeyItem(Protocol):
    """The node's own item in the heartbeat table."""

    def name(self) -> str:
        """Return the name of the item, which the credentials prove. Raises HeartbeatRejected where they are another
        machine's.
        """

    def publish(self, key: PublicKey, now: float) -> str:
        """Write the public key; returns the name of the item. Raises HeartbeatRejected."""

    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True)
class Key:
    """The content of the key file. `signer`: the item with the public key; empty: not published yet."""

    node_id: str
    secret: str  # 32 bytes in Base64
    created_at: float
    signer: str = ""
    published_at: float = 0.0


class Signer:
    """Signs events. Safe to use from several threads, and beside other processes."""

    def __init__(self, folder: Path, node_id: str, item: KeyItem, clock: Clock, *, may_rotate: bool = False) -> None:
        self._folder = folder
        self._node_id = node_id
        self._item = item
        self._clock = clock
        self._may_rotate = may_rotate
        self._lock = threading.RLock()
        self._key = _loaded(folder, node_id) or _kept(folder, _new_key(node_id, clock))
        self._private = _private(self._key)

    def public(self) -> PublicKey:
        """The public key as it is published."""
        with self._lock:
            return _public(self._key)

    def prepare(self) -> None:
        """Ensure that signatures made now can be verified. Costs a call once a day, and one for each process.

        Raises NotPublished, also where the credentials are another machine's than the key: a copied disk has the key
        and the configuration of its origin.
        """
        with self._lock:
            now = self._clock.utc_now().timestamp()
            try:
                signer = self._item.name()
            except HeartbeatRejected as error:
                raise NotPublished(f"whose key this is cannot be told: {error}", error.is_refusal) from error
            if self._may_rotate and now - self._key.created_at > ROTATE_SECONDS:
                self._rotate()
            age = abs(now - self._key.published_at)
            if age <= PUBLISH_AGAIN_SECONDS and self._key.signer == signer:
                return
            try:
                self._publish(self._key)
            except HeartbeatRejected as error:
                if age > PUBLISHED_FOR_SECONDS or self._key.signer != signer:
                    raise NotPublished(f"the signing key is not published: {error}", error.is_refusal) from error

    def sign(self, detail_type: str, event_json: str, signed_at: float) -> str:
        """Return the event in its transmitted form: the signed text, the signer, the key and the signature, as JSON."""
        with self._lock:
            text = signed_text(detail_type, event_json, signed_at)
            signature = self._private.sign(signed_bytes(text))
            envelope = {
                "signed": text,
                "signer": self._key.signer,
                "key_id": _public(self._key).key_id,
                "signature": base64.b64encode(signature).decode(),
            }
            return json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))

    def close(self) -> None:
        """Close the connections."""
        self._item.close()

    def _publish(self, key: Key) -> None:
        now = self._clock.utc_now().timestamp()
        published = replace(key, signer=self._item.publish(_public(key), now), published_at=now)
        self._key, self._private = _kept(self._folder, published), _private(published)

    def _rotate(self) -> None:
        """Publish a new key, then use it. The old public key stays in the item for as long as events may wait."""
        try:
            self._publish(_new_key(self._node_id, self._clock))
        except HeartbeatRejected as error:
            logger.error("the signing key is old and could not be replaced; retrying later", extra={"why": error})
        else:
            logger.info("a new signing key is in use", extra={"key": _public(self._key).key_id})


def _new_key(node_id: str, clock: Clock) -> Key:
    secret = base64.b64encode(os.urandom(SECRET_BYTES)).decode()
    return Key(node_id, secret, created_at=clock.utc_now().timestamp())


def _private(key: Key) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(base64.b64decode(key.secret))


def _public(key: Key) -> PublicKey:
    raw = _private(key).public_key().public_bytes_raw()
    return PublicKey(key_id_of(raw), base64.b64encode(raw).decode(), int(key.created_at))


def _loaded(folder: Path, node_id: str) -> Key | None:
    """Load this node's key from the file; None where there is no usable one. Links are not followed."""
    path = folder / FILE_NAME
    try:
        with as_owner_of(folder), open_file(path) as file:
            key = Key(**json.loads(file.read(FILE_BYTES)))
        _private(key)
        if not all(isinstance(at, int | float) and math.isfinite(at) for at in (key.created_at, key.published_at)):
            raise ValueError("its times are not numbers")
        key.signer.encode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        logger.error("the signing key cannot be read; a new one is created", extra={"path": path, "why": error})
        return None
    if key.node_id != node_id:
        logger.warning("the signing key is another node's; a new one is created", extra={"path": path})
        return None
    return key


def _kept(folder: Path, key: Key) -> Key:
    """Store the key in the file for other processes. A key that could not be stored is used all the same: it is
    published.
    """
    path = folder / FILE_NAME
    if not folder.exists():  # only the agent's first start creates it
        return key
    try:
        with as_owner_of(folder):
            replace_file(path, json.dumps(asdict(key)), MODE)
    except OSError as error:
        logger.error("the signing key cannot be stored on disk", extra={"path": path, "why": error})
    return key
