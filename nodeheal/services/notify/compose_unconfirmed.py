"""Writes the email to the operators about an owner that nodeheal cannot reach."""

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Phase
from nodeheal.services.notify.compose import fit_subject
from nodeheal.services.notify.layout import command, field, paragraph, quoted


def compose_unconfirmed(lost: Notification) -> Notification:
    """One for each job of an owner who cannot be reached. `lost`: the first email that was not delivered."""
    owner, job_id = lost.owner or "nobody", lost.job_id or "a job"
    text = (
        f"{owner} owns {job_id} and gets no email about it: the address was never subscribed, or did not confirm its"
        " subscription. Until then, what nodeheal writes to it is lost, and you are told of this job."
    )
    need = (
        "ask the owner to open AWS's email that asks for a confirmation; it may be in the spam folder."
        " To have it sent again:"
    )
    again = command("nodeheal", "owners", "subscribe", owner)
    body = [
        *paragraph(text),
        "",
        *field("Needed", need),
        again,
        "",
        *quoted("Lost", lost.subject),
    ]
    return Notification(
        key=f"unconfirmed/{owner}/{job_id}",
        subject=fit_subject(f"[nodeheal] {owner}, who owns {job_id}, gets no email: not confirmed"),
        body="\n".join(body),
        severity="INFO",
        pool=lost.pool,
        phase=Phase.NEWS,
        needed=(need, again.strip()),
        job_id=lost.job_id,
    )
