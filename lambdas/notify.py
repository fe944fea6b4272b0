"""notify: sends one announced notification. See nodeheal/services/notify/deliver_notification.py."""

from lambdas.composition import emit, logger, policy_of_others, ports, queued
from nodeheal.contract.json_text import read_json
from nodeheal.contract.notification import Notification
from nodeheal.domain.review.measures import of_notification
from nodeheal.services.notify.deliver_notification import notify


def _take(body: str) -> None:
    """Take one EventBridge event whose detail is a Notification."""
    notification = Notification.model_validate(read_json(body)["detail"])
    is_sent = notify(notification, ports(), policy_of_others())
    emit(lambda: of_notification(notification, is_sent=is_sent))
    logger().info("notification sent" if is_sent else "notification folded", extra={"key": notification.key})


handler = queued("notify", _take, acts=False)
