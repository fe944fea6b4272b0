"""Defines how a node signs its events: Ed25519 over the exact transmitted text. Standard library only. See ADR 49.

The agent signs with these functions and the control plane verifies with them, so that both use the same bytes.
"""

import hashlib
import json

# Precedes the text, so that a signature of something else never fits an event.
PURPOSE = b"nodeheal event 1\n"
PUBLIC_KEY_BYTES = 32
# SQS and SNS keep an event for 14 days at most, in a dead-letter queue too; one more day for clock differences.
KEPT_SECONDS = 15 * 86_400
# A node with a wrong clock signs by AWS's time, to the second. This margin is for slow calls.
EARLY_SECONDS = 300


def signed_text(detail_type: str, event_json: str, signed_at: float) -> str:
    """Return the text to sign: the event's own JSON, unchanged, with its kind and the time of the signature."""
    return f'{{"detail_type":{json.dumps(detail_type)},"signed_at":{signed_at:.0f},"event":{event_json}}}'


def signed_bytes(text: str) -> bytes:
    """Return the signed bytes. Raises UnicodeEncodeError for text that cannot be encoded."""
    return PURPOSE + text.encode()


def key_id_of(public_key: bytes) -> str:
    """Return the id of a public key: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:16]
