"""Render a notification for any endpoint that takes JSON: the facts, and not the email."""

from nodeheal.contract.notification import Notification


def render_webhook(notification: Notification) -> dict[str, object]:
    """Every fact of the notification, in the shape of its schema. The email's body stays out: it may hold approvals."""
    return {"version": 1, **notification.model_dump(mode="json", exclude={"body", "owner", "channel"})}
