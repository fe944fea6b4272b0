"""Render a notification for PagerDuty, Events API v2. The routing key is not among it: EventBridge adds the secret.

The schema: https://github.com/PagerDuty/api-schema, reference/events-v2/openapiv3.json
"""

from nodeheal.contract.notification import INFO, PAGE, Notification
from nodeheal.contract.vocabulary import Ending

SEVERITIES = {PAGE: "critical", INFO: "info"}


def render_pagerduty(notification: Notification) -> dict[str, object]:
    """Resolves the alert of an incident that ended by recovery; triggers one otherwise, one for each incident."""
    dedup_key = notification.incident_id or notification.key
    if notification.ending is Ending.RECOVERED:
        return {"event_action": "resolve", "dedup_key": dedup_key}
    details = {
        "needed": "\n".join(notification.needed),
        "incident": notification.incident_id,
        "job": notification.job_id,
        "escalation": notification.escalation.value if notification.escalation else None,
        "phase": notification.phase.value,
    }
    placed = {"group": notification.pool, "class": notification.family.value if notification.family else None}
    return {
        "event_action": "trigger",
        "dedup_key": dedup_key,
        "client": "nodeheal",
        "payload": {
            "summary": notification.subject,
            "source": notification.node_id or notification.pool or "nodeheal",
            "severity": SEVERITIES[notification.severity],
            **{name: value for name, value in placed.items() if value},
            "custom_details": {name: value for name, value in details.items() if value},
        },
        **({"links": [{"href": notification.link, "text": "execution"}]} if notification.link else {}),
    }
