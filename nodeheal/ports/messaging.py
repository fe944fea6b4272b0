"""Notifications to people."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from nodeheal.contract.names import EMAIL_CHANNEL
from nodeheal.contract.notification import Notification

# Whether what is for this owner's address arrives: it is subscribed, and has confirmed that. None: nobody can tell.
HasConfirmed = Callable[[str], bool | None]


class Delivery(StrEnum):
    """What became of a notification that was to be sent. FOLDED: it was counted, since its minute is full."""

    SENT = "SENT"
    BUSY = "BUSY"
    FOLDED = "FOLDED"


class Way(StrEnum):
    """How a message leaves. TOPIC: SNS. WEBHOOK: EventBridge posts it; no function of ours calls out."""

    TOPIC = "TOPIC"
    WEBHOOK = "WEBHOOK"


@dataclass(frozen=True)
class Message:
    """A notification as one channel takes it. `rendered`: what the channel gets as JSON; nothing: the email itself."""

    notification: Notification
    channel: str = EMAIL_CHANNEL
    way: Way = Way.TOPIC
    rendered: Mapping[str, object] | None = None

    @property
    def key(self) -> str:
        """Sent once. A notification has one key for each channel; that of email and of a digest is its own."""
        note = self.notification
        return note.key if note.channel or self.channel == EMAIL_CHANNEL else f"{self.channel}/{note.key}"


class Notifier(Protocol):
    """Tells people, and keeps what could not be read."""

    def announce(self, detail_type: str, notification: Notification) -> None:
        """Put a notification on the bus."""

    def send(self, message: Message, a_minute: int) -> Delivery:
        """Hand a message to its channel, unless so many went there in this minute, of whatever kind and from all
        functions together. BUSY: somebody else is at it with this very one. A webhook has no such limit: EventBridge
        keeps to the rate of the endpoint, and no message that closes what another has opened may be missing."""

    def folded(self, minute: datetime, channel: str) -> int:
        """How many messages to this channel were counted in this minute instead of sent (strongly consistent)."""

    def was_sent(self, key: str) -> bool:
        """Whether a message with this key has gone out."""

    def mark_sent(self, key: str) -> bool:
        """Remember that it has gone out. False: another call has recorded that before (a conditional write)."""

    def quarantine(self, body: str, why: str) -> None:
        """Keep a message that cannot be read, with the reason."""
