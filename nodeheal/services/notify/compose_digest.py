"""Write a digest: one message that stands for the incidents of some hours."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from nodeheal.contract.notification import INFO, Notification
from nodeheal.contract.vocabulary import Phase
from nodeheal.domain.humanize import counted
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import status_text, title_of
from nodeheal.services.notify.compose import fit_subject
from nodeheal.services.notify.layout import command, field, paragraph, plain

# An email of SNS takes 256 KB, and a person far less. The command at the end lists them all.
_LISTED = 100
_FAULT_CHARACTERS = 100


def digest_key(channel: str, until: datetime) -> str:
    """One for each channel and period."""
    return f"digest/{channel}/{until:%Y-%m-%dT%H}"


def compose_digest(channel: str, since: datetime, until: datetime, incidents: Sequence[Incident]) -> Notification:
    """Counts, and one line for each incident that was opened between the two, as it stands now."""
    many = counted(len(incidents), "incident")
    span = f"from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
    how = Counter(map(status_text, incidents))
    counts = f"{many} {span}: {', '.join(f'{number} {words}' for words, number in how.most_common())}."
    lines = [_line(incident) for incident in incidents[:_LISTED]]
    more = [f"and {len(incidents) - _LISTED} more"] if len(incidents) > _LISTED else []
    every = ("nodeheal", "incidents", "list", "--since", f"{_hours_back(since, until)}h")
    body = [
        *paragraph(counts),
        "",
        *field("Needed", "nothing."),
        "",
        *(part for line in [*lines, *more] for part in paragraph(line)),
        "",
        "All of them:",
        command(*every),
    ]
    return Notification(
        key=digest_key(channel, until),
        subject=fit_subject(f"[nodeheal] digest: {many} {span}"),
        body="\n".join(body),
        severity=INFO,
        pool="",
        phase=Phase.NEWS,
        needed=(counts, *lines, *more),
        channel=channel,
    )


def _line(incident: Incident) -> str:
    job = f", {incident.job_id}" if incident.job_id else ""
    fault = plain(title_of(incident.root), _FAULT_CHARACTERS)
    return (
        f"{incident.opened_at:%m-%d %H:%M} {incident.node_id} ({incident.pool}{job}): {fault}: {status_text(incident)}"
    )


def _hours_back(since: datetime, until: datetime) -> int:
    return int((until - since) / timedelta(hours=1)) + 1  # people read it later
