"""notify: sends one announced notification. See nodeheal/services/notify/deliver_notification.py."""

from lambdas.composition import Event, emit, logger, policy_of_others, ports
from nodeheal.contract.notification import Notification
from nodeheal.domain.review.measures import of_notification
from nodeheal.services.notify.deliver_notification import notify


def handler(event: Event, context: object) -> None:
    """One EventBridge event whose detail is a Notification."""
    notification = Notification.model_validate(event["detail"])
    is_sent = notify(notification, ports(), policy_of_others())
    emit(lambda: of_notification(notification, is_sent=is_sent))
    logger().info("notification sent" if is_sent else "notification folded", extra={"key": notification.key})
