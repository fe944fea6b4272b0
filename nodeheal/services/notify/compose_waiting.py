"""Write the emails of an incident that waits: for a human's answer, for capacity, for the breaker."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited, Escalation, Phase, Refusal
from nodeheal.domain.faults.correlation import are_all_drills
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import History, short_id
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.services.notify.compose import ChannelFacts, facts_of, heading, in_short, letter, lines_of
from nodeheal.services.notify.compose_needed import Part, missing, needed, needed_at_breaker
from nodeheal.services.notify.layout import command, field, link, paragraph, sentence

_YES_NO = {Answer.approve: "yes", Answer.refuse: "no"}


def compose_question(
    history: History,
    request: StepRequest,
    addresses: Mapping[Answer, str],
    due: datetime,
    console_links: ConsoleLinks = NO_LINKS,
    meant: Mapping[Answer, str] = MappingProxyType({}),
) -> Notification:
    """The question: a link for each answer first, then what each is meant to do.

    The page behind a link asks once more: scanners follow links.
    """
    incident, decision, code = history.incident, request.decision, Escalation.APPROVAL_WANTED
    job = f", {incident.job_id}" if incident.job_id else ""
    silence = f"your answer by {due:%Y-%m-%d %H:%M:%S} UTC. Silence is no: then it is handed to a human."
    short = short_id(incident.incident_id)
    commands = [command("nodeheal", answer, short, "--why", "...") for answer in Answer]
    lead, more = in_short(history, decision)
    return letter(
        history,
        decision,
        subject=f"{heading(history)} approve? {incident.node_id}{job}: {decision.fault}",
        key=f"{incident.incident_id}/approval/{request.turn}",
        first=[
            link("Approve", addresses[Answer.approve]),
            link("Refuse", addresses[Answer.refuse]),
            field("Needed", silence),
            paragraph(lead),
            [line for answer, text in meant.items() for line in field(f"If {_YES_NO[answer]}", text)],
            ["Or answer with one of:", *commands],
        ],
        happened=[*more, *facts_of(history, decision)],
        severity="INFO" if history.is_drill else "PAGE",
        # Without the links: who reads a chat may be more than those who may approve.
        facts=ChannelFacts((silence, *map(str.strip, commands))),
        console_links=console_links,
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
    incident = history.incident
    again = f"nodeheal tries again by itself at {due:%Y-%m-%d %H:%M:%S} UTC."
    helps = f"free or buy a machine in place of {incident.node_id}: {missing(history)}. {again}"
    give_up = command("nodeheal", "nodes", "retire", incident.node_id, "--why", "...")
    to_do: list[Part] = [
        (helps, []),
        (f"or name other kinds in `replacement` of pool {incident.pool}.", []),
        ("or give the node up:", [give_up]),
    ]
    lead, more = in_short(history, decision, _why_missing(history))
    return letter(
        history,
        decision,
        subject=f"{heading(history)} no capacity: {incident.node_id} waits for a replacement",
        key=decision.page_key or f"{incident.incident_id}/{decision.awaits}",
        first=[paragraph(lead), needed(to_do)],
        happened=[*more, *facts_of(history, decision)],
        severity="PAGE",
        facts=ChannelFacts(lines_of(to_do)),
        console_links=console_links,
        phase=Phase.WAITS,
        escalation=Escalation.NO_CAPACITY,
    )


def _compose_turn(history: History, decision: Decision, due: datetime, console_links: ConsoleLinks) -> Notification:
    """Writes about an incident that waits for others: nothing is missing, so it pages no one."""
    incident = history.incident
    nothing = f"nothing; it is tried again at {due:%Y-%m-%d %H:%M:%S} UTC."
    how_many = f"replacement.max_nodes of the policy: so many nodes of pool {incident.pool} may be replaced at once"
    lead, more = in_short(history, decision)
    return letter(
        history,
        decision,
        subject=f"{heading(history)} in turn: {incident.node_id} waits for other replacements",
        key=decision.page_key or f"{incident.incident_id}/{decision.awaits}",
        first=[paragraph(lead), field("Needed", nothing)],
        happened=[*more, *facts_of(history, decision), *field("Limit", how_many)],
        severity="INFO",
        facts=ChannelFacts((nothing,)),
        console_links=console_links,
        phase=Phase.WAITS,
    )


def _why_missing(history: History) -> str:
    """What the last try of a replacement has said, which stands under what is needed."""
    results = [turn.result for turn in history.turns if turn.result is not None]
    reasons = [result.reason for result in results if result.refused_for(Refusal.NO_CAPACITY)]
    return reasons[-1] if reasons else ""


def _compose_breaker(history: History, decision: Decision, console_links: ConsoleLinks) -> Notification:
    """The one page of a storm. It is about the pool: what one of its nodes would need by itself is bad advice now."""
    pool = history.incident.pool
    cause = decision.reason.removeprefix(f"{decision.fault}: ").partition(". ")[0]
    are_drills = are_all_drills(cause) and history.is_drill
    marked, without_nodes = heading(history) if are_drills else "[nodeheal]", cause.partition(" (")[0]
    to_do = needed_at_breaker(pool)
    return letter(
        history,
        decision,
        subject=f"{marked} breaker open: pool {pool}: {without_nodes}",
        key=decision.page_key or f"breaker/{pool}",
        first=[paragraph(sentence(decision.reason)), needed(to_do)],
        happened=[
            *field("Pool", pool),
            *field("First seen", history.incident.node_id),
            *(field("Drill", "every fault was injected. The open breaker is real.") * are_drills),
        ],
        severity="PAGE",
        facts=ChannelFacts(lines_of(to_do)),
        console_links=console_links,
        phase=Phase.WAITS,
        escalation=Escalation.BREAKER_OPEN,
    )
