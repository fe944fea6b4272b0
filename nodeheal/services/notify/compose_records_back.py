"""Write the page about records that went back: their table was restored to an earlier moment."""

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Escalation, Phase
from nodeheal.domain.records_epoch import Epoch
from nodeheal.domain.review.console_links import ConsoleLinks
from nodeheal.services.notify.layout import command, field, link, paragraph

_KEY = "records-back/"


def compose_records_back(marks: Epoch, console_links: ConsoleLinks) -> Notification:
    """One for each restore. It is of no pool: those who asked for one pool only do not get it."""
    since, until = (f"{at:%Y-%m-%d %H:%M:%S} UTC" for at in (marks.lost_since, marks.outside))
    needed = "look at what would be set right; then run it without --dry-run:"
    look = command("nodeheal", "reconcile", "--dry-run")
    body = [
        *paragraph(
            f"The table of nodeheal is an older copy of itself. It does not know what was done from {since} until "
            f"{until}. nodeheal does nothing until you have set the records right: no node is touched, and no job "
            "starts. Health events wait in their queue."
        ),
        "",
        *field("Needed", needed),
        look,
        *link("Runbook", console_links.runbook(Escalation.RECORDS_RESTORED)),
    ]
    return Notification(
        key=f"{_KEY}{marks.outside:%Y%m%dT%H%M%S}",
        subject=f"[nodeheal] stopped: its records went back to {since}",
        body="\n".join(body),
        severity="PAGE",
        pool="",
        phase=Phase.NEWS,
        escalation=Escalation.RECORDS_RESTORED,
        needed=(needed, look.strip()),
    )
