"""Hand an announced notification to people, once, and no more of them in a minute than people and SNS can take."""

from datetime import timedelta

from nodeheal.contract.names import INCIDENT_ESCALATED
from nodeheal.contract.notification import Notification
from nodeheal.ports import Ports
from nodeheal.ports.messaging import Delivery
from nodeheal.services.notify.compose_storm import compose_storm, tells_of_storm
from nodeheal.services.notify.compose_unconfirmed import compose_unconfirmed

# SNS switches an address off that gets more than ten emails a second, 600 a minute. All topics count together.
EMAILS_A_MINUTE = 30
# What can wait takes no more of them, so that pages and questions have the others to themselves.
ROUTINE_A_MINUTE = 15
# One that says how many were not sent comes on top: one a minute, for each of the minutes that are looked back at.
STORM_MINUTES = 5


def notify(notification: Notification, ports: Ports) -> bool:
    """False: it was not sent now. It has gone out before, or is going out, since a storm announces one page many times
    at once; or too much has gone out in this minute, and it was counted.

    A crash right after sending sends it twice, which is better than never. What an owner cannot hear yet, the
    operators are told of, once a job."""
    if ports.notifier.was_sent(notification):
        return False
    delivery = ports.notifier.send(notification, _limit_of(notification))
    if delivery is Delivery.BUSY:
        return False
    ports.notifier.mark_sent(notification)
    if delivery is Delivery.FOLDED:
        return False
    if notification.owner and ports.has_confirmed(notification.owner) is False:
        notify(compose_unconfirmed(notification), ports)
    return True


def report_storm(ports: Ports) -> list[str]:
    """Announce, once for each of the last minutes, how many notifications were not sent in it; their keys."""
    announced = []
    this_minute = ports.clock().replace(second=0, microsecond=0)
    for minutes in range(1, STORM_MINUTES + 1):
        minute = this_minute - timedelta(minutes=minutes)
        folded = ports.notifier.folded(minute)
        told = compose_storm(minute, folded) if folded else None
        if told is not None and not ports.notifier.was_sent(told):
            ports.notifier.announce(INCIDENT_ESCALATED, told)
            announced.append(told.key)
    return announced


def _limit_of(notification: Notification) -> int:
    if tells_of_storm(notification):
        return EMAILS_A_MINUTE + STORM_MINUTES
    return EMAILS_A_MINUTE if notification.severity == "PAGE" else ROUTINE_A_MINUTE
