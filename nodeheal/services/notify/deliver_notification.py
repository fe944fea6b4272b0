"""Hand an announced notification to its channels, once each, and no more of them in a minute than people can take."""

from collections.abc import Iterator
from datetime import timedelta

from nodeheal.contract.names import EMAIL_CHANNEL, INCIDENT_ESCALATED
from nodeheal.contract.notification import Notification
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Severity
from nodeheal.ports import Ports
from nodeheal.ports.messaging import Delivery, Message, Way
from nodeheal.services.notify.channel_kinds import KINDS
from nodeheal.services.notify.compose_storm import compose_storm, tells_of_storm
from nodeheal.services.notify.compose_unconfirmed import compose_unconfirmed

# SNS switches an address off that gets more than ten emails a second, 600 a minute. All topics count together. A chat
# or a pager that gets more is not read.
EMAILS_A_MINUTE = 30
# What can wait takes no more of them, so that pages and questions have the others to themselves.
ROUTINE_A_MINUTE = 15
# One that says how many were not sent comes on top: one a minute, for each of the minutes that are looked back at.
STORM_MINUTES = 5


def notify(notification: Notification, ports: Ports, policy: RecoveryPolicy) -> bool:
    """False: it was not sent now. It has gone out before, or is going out, since a storm announces one page many times
    at once; or too much has gone out in this minute, and it was counted; or no channel takes it.

    A crash right after sending sends it twice, which is better than never; a digest rather never. A channel that fails
    keeps it from no other: its error is raised in the end, and the call that comes again sends what has not gone out.
    If an owner cannot be reached yet, operators are notified once for each job."""
    messages = list(_messages_of(notification, ports, policy))
    broken: list[Exception] = []
    sent = []
    for message in messages:
        try:
            sent.append(_deliver(message, ports))
        except Exception as error:  # another channel must still get it
            broken.append(error)
    if broken:
        raise broken[0]
    if not any(message.channel == EMAIL_CHANNEL for message in messages):
        ports.notifier.mark_sent(notification.key)  # as its email would be: it is not announced again
    if any(sent) and notification.owner and ports.has_confirmed(notification.owner) is False:
        notify(compose_unconfirmed(notification), ports, policy)
    return any(sent)


def _messages_of(notification: Notification, ports: Ports, policy: RecoveryPolicy) -> Iterator[Message]:
    """What each channel gets. A page that no channel of this deployment takes goes by email."""
    if notification.owner:
        yield Message(notification)
        return
    names = [name for name in policy.channels if _gets(name, notification, ports, policy)]
    if not names and notification.severity == Severity.PAGE:
        names = [EMAIL_CHANNEL]
    for name in names:
        yield KINDS[ports.channels[name]].message(notification, name)


def _gets(channel: str, notification: Notification, ports: Ports, policy: RecoveryPolicy) -> bool:
    if channel not in ports.channels:
        return False  # it was taken out of the deployment since the policy was applied
    if notification.channel:
        return notification.channel == channel
    return KINDS[ports.channels[channel]].wants(notification, policy.channels[channel].severities)


def _deliver(message: Message, ports: Ports) -> bool:
    if ports.notifier.was_sent(message.key):
        return False
    if message.notification.channel and not ports.notifier.mark_sent(message.key):
        return False  # before a digest is sent: once at most
    delivery = ports.notifier.send(message, _limit_of(message.notification))
    if delivery is Delivery.BUSY:
        return False
    ports.notifier.mark_sent(message.key)
    return delivery is Delivery.SENT


def report_storm(ports: Ports) -> list[str]:
    """Announce, once for each of the last minutes, how many notifications were not sent in it; their keys."""
    announced = []
    this_minute = ports.clock().replace(second=0, microsecond=0)
    topics = [name for name, kind in ports.channels.items() if KINDS[kind].way is Way.TOPIC]
    for minutes in range(1, STORM_MINUTES + 1):
        minute = this_minute - timedelta(minutes=minutes)
        folded = max(ports.notifier.folded(minute, channel) for channel in topics)
        storm = compose_storm(minute, folded) if folded else None
        if storm is not None and not ports.notifier.was_sent(storm.key):
            ports.notifier.announce(INCIDENT_ESCALATED, storm)
            announced.append(storm.key)
    return announced


def _limit_of(notification: Notification) -> int:
    if tells_of_storm(notification) or notification.channel:
        return EMAILS_A_MINUTE + STORM_MINUTES
    return EMAILS_A_MINUTE if notification.severity == Severity.PAGE else ROUTINE_A_MINUTE
