"""Render a notification for Slack and Microsoft Teams, as Amazon Q Developer in chat applications takes it.

The schema of its custom notifications: https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html
"""

from nodeheal.contract.notification import PAGE, Notification
from nodeheal.services.notify.layout import plain

# The page names no limits. Slack takes 3,000 characters in a block of text.
DESCRIPTION_CHARACTERS = 2_500
# Of both programs' Markdown, what makes links, mentions, quotes or code of words that a node or a job has chosen.
_MARKUP = str.maketrans(dict.fromkeys("<>[]`*~|@", " "))


def render_chat(notification: Notification) -> dict[str, object]:
    """Title, what is needed, and the link. Those about one incident make one thread."""
    needed = [_text(line) for line in notification.needed]
    lines = [*needed, *([notification.link] if notification.link else [])]
    about = {"pool": notification.pool, "node": notification.node_id, "job": notification.job_id}
    return {
        "version": "1.0",
        "source": "custom",
        "id": notification.key,
        "content": {
            "textType": "client-markdown",
            "title": f"{':rotating_light: ' if notification.severity == PAGE else ''}{_text(notification.subject)}",
            "description": _cut(lines) or "nothing is needed",
            "keywords": [notification.severity, *([notification.escalation.value] if notification.escalation else [])],
        },
        "metadata": {
            "threadId": notification.incident_id or notification.key,
            "summary": _text(notification.subject),
            "eventType": notification.phase.value,
            "additionalContext": {name: value for name, value in about.items() if value},
        },
    }


def _text(line: str) -> str:
    return " ".join(plain(line).translate(_MARKUP).split())


def _cut(lines: list[str]) -> str:
    """As many whole lines as fit. The last one, the link, is always among them."""
    room = DESCRIPTION_CHARACTERS - sum(map(len, lines[-1:]))
    kept: list[str] = []
    for line in lines[:-1]:
        room -= len(line) + 1
        if room < 0:
            kept.append("...")
            break
        kept.append(line)
    return "\n".join([*kept, *lines[-1:]])
