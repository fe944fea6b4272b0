"""Write the email about what a breaker's reset has dropped: one for all of it, so it is about the pool."""

from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import Decision
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.services.notify.compose import Facts, letter, lines_of, told_by
from nodeheal.services.notify.compose_needed import needed
from nodeheal.services.notify.layout import command, field, paragraph


def compose_dropped(
    history: History, decided: Decision, pool: Pool, console_links: ConsoleLinks = NO_LINKS
) -> Notification:
    """The first dropped incident reports all of them: the others are folded into this email."""
    incident = history.incident
    job = f" ({incident.job_id})" if incident.job_id else ""
    who, why = pool.breaker_reset
    told = (
        f"The breaker of pool {pool.name} was reset. What had waited for that and was too old by then is closed, one "
        "incident for each node: nothing was done to these nodes, and nobody has proven them. What was fresh enough "
        "goes on, within the budget."
    )
    dropped = command("nodeheal", "incidents", "list", "--pool", pool.name, "--state", "closed", "--since", "1d")
    reboot = command("nodeheal", "nodes", "reboot", "NODE", "--why", "...")
    to_do = [
        ("see which nodes and jobs were dropped:", [dropped]),
        ("have each node that you do not trust rebooted and proven:", [reboot]),
    ]
    return letter(
        history,
        subject=f"[nodeheal] breaker reset: pool {pool.name}: what was stale by then is dropped",
        key=decided.page_key or f"breaker/{pool.name}/dropped",
        parts=[
            paragraph(told),
            [
                *field("Pool", pool.name),
                *(field("Reset", f"{pool.breaker_reset_at:%Y-%m-%d %H:%M:%S} UTC") if pool.breaker_reset_at else []),
                *field("By", who or "not said"),
                *field("Why", why or "not said"),
                *field("One of it", f"{incident.node_id}{job}: {decided.reason}"),
            ],
            [
                *needed(to_do),
                *field("", "A node that shows its fault again is news, and recovered as ever."),
            ],
            told_by(history, decided, console_links),
        ],
        severity="INFO",
        facts=Facts(lines_of(to_do)),
    )
