"""The kinds of channels: how a message of each kind leaves, and what it looks like.

A new kind is a word in contract/vocabulary.py, a row here, and a file that renders a notification for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nodeheal.contract.names import EMAIL_CHANNEL
from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import ChannelKind, Ending
from nodeheal.domain.policy.policy_models import Severity
from nodeheal.ports.messaging import Message, Way
from nodeheal.services.notify.render_chat import render_chat
from nodeheal.services.notify.render_pagerduty import render_pagerduty
from nodeheal.services.notify.render_webhook import render_webhook


@dataclass(frozen=True)
class KindOfChannel:
    """One kind. `render`: nothing where it takes the email as it is."""

    way: Way
    render: Callable[[Notification], Mapping[str, object]] | None = None
    takes_digests: bool = True
    resolves: bool = False  # what it was paged for is closed there when the incident ends by recovery

    def wants(self, notification: Notification, severities: tuple[Severity, ...]) -> bool:
        """Whether a channel of this kind that takes these severities gets the notification."""
        is_resolved = self.resolves and notification.ending is Ending.RECOVERED
        return notification.severity in severities or (is_resolved and Severity.PAGE in severities)

    def message(self, notification: Notification, channel: str) -> Message:
        """The notification as a channel of this kind takes it."""
        return Message(notification, channel, self.way, self.render(notification) if self.render else None)


KINDS = {
    ChannelKind.email: KindOfChannel(Way.TOPIC),
    ChannelKind.chat: KindOfChannel(Way.TOPIC, render_chat),
    ChannelKind.pagerduty: KindOfChannel(Way.WEBHOOK, render_pagerduty, takes_digests=False, resolves=True),
    ChannelKind.webhook: KindOfChannel(Way.WEBHOOK, render_webhook),
}


def read_channels(deployed: str) -> dict[str, ChannelKind]:
    """The channels of a deployment by name, as its environment and its outputs say them. Email is always there."""
    pairs = (channel.partition("=") for channel in deployed.split(",") if channel)
    return {EMAIL_CHANNEL: ChannelKind.email, **{name: ChannelKind(kind) for name, _, kind in pairs}}
