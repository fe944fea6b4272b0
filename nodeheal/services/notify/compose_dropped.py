"""Write the email about what a breaker's reset has dropped: one for all of it, so it is about the pool."""

from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import Decision
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.services.notify.compose import ChannelFacts, heading, letter
from nodeheal.services.notify.layout import command, field, paragraph


def compose_dropped(
    history: History, decided: Decision, pool: Pool, console_links: ConsoleLinks = NO_LINKS
) -> Notification:
    """The first dropped incident reports all of them: the others are folded into this email. Drills have their own."""
    incident = history.incident
    job = f" ({incident.job_id})" if incident.job_id else ""
    is_drill = history.is_drill
    text = (
        f"The breaker of pool {pool.name} was reset. Incidents that were too old by then are closed: nothing was done "
        "to their nodes, and nobody has proven them. The others go on, within the budget."
    )
    nothing = "nothing. A node that shows its fault again is recovered as usual."
    dropped = command("nodeheal", "incidents", "list", pool.name, "--since", "1d")
    reboot = command("nodeheal", "nodes", "reboot", "NODE", "--why", "...")
    return letter(
        history,
        decided,
        subject=f"{heading(history)} breaker reset: pool {pool.name}: what was stale by then is dropped",
        key=decided.page_key or f"breaker/{pool.name}/dropped",
        first=[
            paragraph(text),
            field("Needed", nothing),
            ["To see which nodes and jobs were dropped:", dropped],
            ["To have a node that you do not trust rebooted and proven:", reboot],
        ],
        happened=[
            *field("Pool", pool.name),
            *(field("Drill", "every fault that this is about was injected. The open breaker was real.") * is_drill),
            *(field("Reset", f"{pool.breaker_reset_at:%Y-%m-%d %H:%M:%S} UTC") if pool.breaker_reset_at else []),
            *(field("By", pool.breaker_reset_by) if pool.breaker_reset_by else []),
            *(field("Why", pool.breaker_reset_why) if pool.breaker_reset_why else []),
            *field("One of them", f"{incident.node_id}{job}: {decided.reason}"),
        ],
        severity="INFO",
        facts=ChannelFacts((nothing,)),
        console_links=console_links,
    )
