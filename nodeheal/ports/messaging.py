"""Notifications to people."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from nodeheal.contract.notification import Notification

# Whether what is for this owner's address arrives: it is subscribed, and has confirmed that. None: nobody can tell.
HasConfirmed = Callable[[str], bool | None]


class Delivery(StrEnum):
    """What became of a notification that was to be sent. FOLDED: it was counted, since its minute is full."""

    SENT = "SENT"
    BUSY = "BUSY"
    FOLDED = "FOLDED"


class Notifier(Protocol):
    """Tells people, and keeps what could not be read."""

    def announce(self, detail_type: str, notification: Notification) -> None:
        """Put a notification on the bus."""

    def send(self, notification: Notification, a_minute: int) -> Delivery:
        """Hand a notification to the people who are subscribed, unless so many went out in this minute, of whatever
        kind and from all functions together. BUSY: somebody else is at it with this very one."""

    def folded(self, minute: datetime) -> int:
        """How many notifications were counted in this minute instead of sent (strongly consistent)."""

    def was_sent(self, notification: Notification) -> bool:
        """Whether a notification with this key has gone out."""

    def mark_sent(self, notification: Notification) -> None:
        """Remember that it has gone out. Comes after sending: twice is better than never."""

    def quarantine(self, body: str, why: str) -> None:
        """Keep a message that cannot be read, with the reason."""
