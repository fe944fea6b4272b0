"""Hand an announced notification to people, once."""

from nodeheal.contract.notification import Notification
from nodeheal.ports import Ports
from nodeheal.services.compose_unconfirmed import compose_unconfirmed


def notify(notification: Notification, ports: Ports) -> bool:
    """False: it has gone out before, or is going out now: a storm announces one page many times at once.

    A crash right after sending sends it twice, which is better than never. What an owner cannot hear yet, the
    operators are told of, once a job."""
    if ports.messenger.was_sent(notification) or not ports.messenger.send(notification):
        return False
    ports.messenger.mark_sent(notification)
    if notification.owner and ports.has_confirmed(notification.owner) is False:
        notify(compose_unconfirmed(notification), ports)
    return True
