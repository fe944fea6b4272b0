"""How a node signs what it reports: Ed25519 over the exact text that travels. Standard library only. See ADR 49.

The agent signs with these functions and the control plane verifies with them, so that both see the same bytes.
"""

import hashlib
import json

# Stands before the text, so that a signature over something else never fits an event.
PURPOSE = b"nodeheal event 1\n"
PUBLIC_KEY_BYTES = 32
# SQS and SNS keep an event for 14 days at most, in a dead-letter queue too: a day more for clocks.
KEPT_SECONDS = 15 * 86_400
# A node whose clock is wrong signs by the time of AWS, to the second. This much is left for slow calls.
EARLY_SECONDS = 300


def signed_text(detail_type: str, event_json: str, signed_at: float) -> str:
    """The text that is signed: the event's own JSON, unchanged, with its kind and the time of the signature."""
    return f'{{"detail_type":{json.dumps(detail_type)},"signed_at":{signed_at:.0f},"event":{event_json}}}'


def signed_bytes(text: str) -> bytes:
    """What the signature covers. Raises UnicodeEncodeError for text that cannot be sent."""
    return PURPOSE + text.encode()


def key_id_of(public_key: bytes) -> str:
    """The name of a public key: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:16]
