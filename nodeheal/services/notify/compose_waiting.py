"""Write the emails of an incident that waits: for a human's answer, for capacity, for the breaker."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited, Escalation, Phase
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.services.notify.compose import Facts, facts_of, heading, letter, lines_of, told_by
from nodeheal.services.notify.compose_needed import missing, needed
from nodeheal.services.notify.layout import command, field, link, paragraph

_YES_NO = {Answer.approve: "yes", Answer.refuse: "no"}


def compose_question(
    history: History,
    request: StepRequest,
    addresses: Mapping[Answer, str],
    due: datetime,
    console_links: ConsoleLinks = NO_LINKS,
    meant: Mapping[Answer, str] = MappingProxyType({}),
) -> Notification:
    """The question, with a link for each answer, and what each is meant to do.

    The page behind a link asks once more: scanners follow links.
    """
    incident, decision, code = history.incident, request.decision, Escalation.APPROVAL_WANTED
    job = f", {incident.job_id}" if incident.job_id else ""
    silence = f"your answer by {due:%Y-%m-%d %H:%M:%S} UTC. Silence is no: then it is handed to a human."
    links = [link("Approve", addresses[Answer.approve]), "", link("Refuse", addresses[Answer.refuse])]
    commands = [command("nodeheal", answer, incident.incident_id, "--why", "...") for answer in Answer]
    return letter(
        history,
        subject=f"{heading(history)} approve? {incident.node_id}{job}: {decision.fault}",
        key=f"{incident.incident_id}/approval/{request.turn}",
        parts=[
            [*paragraph(decision.reason), "", *facts_of(history, decision)],
            [line for answer, text in meant.items() for line in field(f"If {_YES_NO[answer]}", text)],
            [*field("Needed", silence), "", *links, "", *field("Or", "one of:"), *commands],
            told_by(history, decision, console_links, code),
        ],
        severity="INFO" if history.is_drill else "PAGE",
        # Without the links: who reads a chat may be more than those who may approve.
        facts=Facts((silence, *map(str.strip, commands)), console_links.execution(incident.incident_id)),
        phase=Phase.ASKS,
        escalation=code,
    )


def compose_waiting(
    history: History, decision: Decision, due: datetime, console_links: ConsoleLinks = NO_LINKS
) -> Notification | None:
    """What people must know of a wait that ends at `due`. None where it is nothing to them."""
    match decision.awaits:
        case Awaited.BREAKER:
            return _compose_breaker(history, decision, console_links)
        case Awaited.CAPACITY:
            return _compose_capacity(history, decision, due, console_links)
        case Awaited.REPLACEMENT:
            return _compose_turn(history, decision, due, console_links)
        case _:
            return None


def _compose_capacity(history: History, decision: Decision, due: datetime, console_links: ConsoleLinks) -> Notification:
    """The page about a machine that is not to be had: what is missing, who can help, and when it is tried again."""
    incident, code = history.incident, Escalation.NO_CAPACITY
    again = f"nodeheal tries again by itself at {due:%Y-%m-%d %H:%M:%S} UTC. It helps to free or buy a machine of that"
    again += f" kind, or to name others in `replacement` of pool {incident.pool}. Or give the node up:"
    give_up = command("nodeheal", "nodes", "retire", incident.node_id, "--why", "...")
    to_do = [(f"{missing(history)}. {again}", [give_up])]
    return letter(
        history,
        subject=f"{heading(history)} no capacity: {incident.node_id} waits for a replacement",
        key=decision.page_key or f"{incident.incident_id}/{decision.awaits}",
        parts=[
            [*_without_fault(decision), "", *facts_of(history, decision)],
            needed(to_do),
            told_by(history, decision, console_links, code),
        ],
        severity="PAGE",
        facts=Facts(lines_of(to_do), console_links.execution(incident.incident_id)),
        phase=Phase.WAITS,
        escalation=code,
    )


def _compose_turn(history: History, decision: Decision, due: datetime, console_links: ConsoleLinks) -> Notification:
    """Writes about an incident that waits for others: nothing is missing, so it pages no one."""
    incident = history.incident
    nothing = f"nothing; it is tried again at {due:%Y-%m-%d %H:%M:%S} UTC. How many nodes of pool {incident.pool}"
    nothing += " may be replaced at once is its policy's replacement.max_nodes."
    return letter(
        history,
        subject=f"{heading(history)} in turn: {incident.node_id} waits for other replacements",
        key=decision.page_key or f"{incident.incident_id}/{decision.awaits}",
        parts=[
            [*_without_fault(decision), "", *facts_of(history, decision)],
            field("Needed", nothing),
            told_by(history, decision, console_links),
        ],
        severity="INFO",
        facts=Facts((nothing,), console_links.execution(incident.incident_id)),
        phase=Phase.WAITS,
    )


def _without_fault(decision: Decision) -> list[str]:
    """The reason; the fault that it begins with stands among the facts."""
    said = decision.reason.removeprefix(f"{decision.fault}: ")
    return paragraph(f"{said[:1].upper()}{said[1:]}.")


def _compose_breaker(history: History, decision: Decision, console_links: ConsoleLinks) -> Notification:
    """The one page of a storm. It is about the pool: what one of its nodes would need by itself is bad advice now."""
    pool, code = history.incident.pool, Escalation.BREAKER_OPEN
    cause = decision.reason.removeprefix(f"{decision.fault}: ").partition(". ")[0]
    looks = [
        command("nodeheal", "breaker", "show", pool),
        command("nodeheal", "incidents", "list", "--pool", pool, "--state", "waiting"),
        command("nodeheal", "nodes", "list", pool),
    ]
    reset = command("nodeheal", "breaker", "reset", pool, "--why", "...")
    to_do = [
        ("see who fails, and which jobs hold; find what they have in common:", looks),
        ("put it right, and then (what is stale by then is dropped):", [reset]),
    ]
    return letter(
        history,
        subject=f"[nodeheal] breaker open: pool {pool}: {cause}",
        key=decision.page_key or f"breaker/{pool}",
        parts=[
            [*paragraph(decision.reason), "", *field("Pool", pool), *field("First seen", history.incident.node_id)],
            needed(to_do),
            told_by(history, decision, console_links, code),
        ],
        severity="PAGE",
        facts=Facts(lines_of(to_do), console_links.execution(history.incident.incident_id)),
        phase=Phase.WAITS,
        escalation=code,
    )
