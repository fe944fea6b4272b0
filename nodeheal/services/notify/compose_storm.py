"""Write the email that stands for those that were not sent, because too many went out in one minute."""

from datetime import datetime

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Phase
from nodeheal.domain.humanize import counted
from nodeheal.services.notify.layout import command, field, paragraph

_KEY = "storm/"


def tells_of_storm(notification: Notification) -> bool:
    """Whether it is such an email, which is sent when the minute is full, too."""
    return notification.key.startswith(_KEY)


def compose_storm(minute: datetime, folded: int) -> Notification:
    """One for each minute. It is of no pool: those who asked for one pool only do not get it."""
    more = f"{counted(folded, 'more email')} at {minute:%Y-%m-%d %H:%M} UTC"
    every = ("nodeheal", "incidents", "list")
    looks = [command(*every, "--state", "waiting"), command(*every)]
    need = "look at the open incidents, and answer those that wait for you by command:"
    body = [
        *paragraph(f"Too much happened in one minute. nodeheal did not send {more}. Its recoveries went on."),
        "",
        *field("Needed", need),
        *looks,
    ]
    return Notification(
        key=f"{_KEY}{minute:%Y-%m-%dT%H:%M}",
        subject=f"[nodeheal] storm: {more}",
        body="\n".join(body),
        severity="PAGE",
        pool="",
        phase=Phase.NEWS,
        needed=(need, *map(str.strip, looks)),
    )
