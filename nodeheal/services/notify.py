"""Hand an announced notification to people, once."""

from nodeheal.contract.notification import Notification
from nodeheal.ports import Ports


def notify(notification: Notification, ports: Ports) -> bool:
    """False: it has gone out before, or is going out now: a storm announces one page many times at once.

    A crash right after sending sends it twice, which is better than never."""
    if ports.messenger.was_sent(notification) or not ports.messenger.send(notification):
        return False
    ports.messenger.mark_sent(notification)
    return True
