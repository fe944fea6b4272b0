"""Write the email that an operator reads at night: what happened, why, what was tried, what is needed."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.notification import SUBJECT_CHARACTERS, Notification
from nodeheal.contract.results import EvidenceSaved
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, Escalation, Outcome, Phase
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_tasks import job_text
from nodeheal.domain.humanize import counted
from nodeheal.domain.recovery.confirmation import confirmations_in
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.services.notify.compose_needed import Part, needed, what_is_needed
from nodeheal.services.notify.compose_unmanaged_tasks import fate_of_unmanaged_tasks
from nodeheal.services.notify.layout import field, link, paragraph, plain, quoted

_WORDS = {
    Ending.RECOVERED: "recovered",
    Ending.OBSERVED_ONLY: "observed only",
    Ending.HANDED_TO_A_HUMAN: "needs a human",
}
# The email has the beginning and the end of a long timeline.
_FIRST_LINES, _LAST_LINES = 10, 30


def compose(
    history: History, seen: Progress, decided: Decision, node: Node, console_links: ConsoleLinks = NO_LINKS
) -> Notification:
    """One email for one ending of one incident. Sending it twice is folded by its key."""
    incident, ending = history.incident, decided.ending or Ending.HANDED_TO_A_HUMAN
    is_human = ending is Ending.HANDED_TO_A_HUMAN
    job = f", {incident.job_id}{_how_the_job_is(seen, ending)}" if incident.job_id else ""
    to_do = what_is_needed(history, seen, decided, node)
    return letter(
        history,
        subject=f"{heading(history)} {_WORDS[ending]}: {incident.node_id}{job}: {decided.fault}",
        key=decided.page_key or f"{incident.incident_id}/{ending}",
        parts=[
            _head(history, seen, decided),
            needed(to_do),
            told_by(history, decided, console_links),
        ],
        severity="PAGE" if is_human and not _can_wait_until_morning(history, seen, decided) else "INFO",
        facts=Facts(lines_of(to_do), console_links.execution(incident.incident_id), ending),
        escalation=decided.escalation,
    )


def _how_the_job_is(seen: Progress, ending: Ending) -> str:
    """A subject is read alone: it must not sound as if the job ran again, or as if it were down."""
    if seen.has_stopped_job:
        return " is down"
    if seen.job_is_left_to and seen.job_is_down:
        return " still down"  # another incident brings it back
    return " runs again" if _is_back(seen) and ending is Ending.HANDED_TO_A_HUMAN else ""


def _is_back(seen: Progress) -> bool:
    """Whether this has brought the job back, and it runs."""
    is_done = seen.restart is not None and seen.restart.outcome is Outcome.DONE
    return is_done and not seen.job_is_down and not seen.job_is_over


def _runs_again(history: History, seen: Progress) -> str:
    incident = history.incident
    where = f"with {seen.replacement} in place of {incident.node_id}" if seen.replacement else "on the same nodes"
    return f"{incident.job_id} runs again, {where}."


def _can_wait_until_morning(history: History, seen: Progress, decided: Decision) -> bool:
    """The job runs on a spare and only the broken node is left; or an operator has just asked for it; or it is a drill.

    Of a drill, only what it has left behind is real: a node out of service, a job that is down.
    """
    is_by_hand = history.incident.root.code == OPERATOR_REQUEST
    if history.incident.is_of_new_node:
        return True  # it has never served, so no job needs it
    if history.is_drill and not seen.is_isolated and not seen.has_stopped_job:
        return True
    return decided.escalation is Escalation.REPAIR_PENDING or (
        is_by_hand and decided.escalation is Escalation.ISOLATED_ON_REQUEST
    )


def heading(history: History) -> str:
    """What the subject of every email about the incident begins with."""
    return "[nodeheal] drill:" if history.is_drill else "[nodeheal]"


@dataclass(frozen=True)
class Facts:
    """What the channels beside email are rendered from, and the email says in its own way."""

    needed: tuple[str, ...]
    link: str = ""
    ending: Ending | None = None


def lines_of(parts: Sequence[Part]) -> tuple[str, ...]:
    """What is needed as plain lines: each thing to do, then its commands."""
    return tuple(line.strip() for text, commands in parts for line in (text, *commands))


def letter(
    history: History,
    subject: str,
    key: str,
    parts: Sequence[Sequence[str]],
    severity: str,
    facts: Facts,
    phase: Phase = Phase.ENDED,
    escalation: Escalation | None = None,
) -> Notification:
    """An email about an incident: its parts with a blank line between, then the story so far."""
    incident = history.incident
    return Notification(
        key=key,
        subject=fit_subject(subject),
        body="\n\n".join("\n".join(part) for part in [*parts, _story_of(history)] if part),
        severity=severity,
        pool=incident.pool,
        phase=phase,
        node_id=incident.node_id,
        family=incident.root.family,
        escalation=escalation,
        incident_id=incident.incident_id,
        ending=facts.ending,
        needed=facts.needed,
        link=facts.link,
    )


def fit_subject(subject: str) -> str:
    """SNS takes printable ASCII only, on one line."""
    line = plain(subject).encode("ascii", "replace").decode()
    return line if len(line) <= SUBJECT_CHARACTERS else line[: SUBJECT_CHARACTERS - 3] + "..."


def _head(history: History, seen: Progress, decided: Decision) -> list[str]:
    tried = "; ".join(filter(None, [seen.summary(), _tried_in_vain(seen), seen.restart.reason if seen.restart else ""]))
    answers = [line for answer in seen.approvals.values() for line in field("Answered", answer.reason)]
    facts = facts_of(history, decided)
    is_news = _is_back(seen) and decided.ending is not Ending.RECOVERED
    again = paragraph(_runs_again(history, seen)) if is_news else []
    return [
        *paragraph(decided.reason),
        *again,
        "",
        *facts,
        *field("Tried", tried or "nothing"),
        *answers,
        *fate_of_unmanaged_tasks(history, seen),
    ]


def _tried_in_vain(seen: Progress) -> str:
    """The tries of a replacement for which there was no machine: they are no escalation step that was climbed."""
    if seen.missing is None or not seen.capacity_tries or seen.replacement:
        return ""
    times = counted(seen.capacity_tries, "time", "times")
    return f"a replacement, {times}, without success ({seen.missing.reason})"


def facts_of(history: History, decided: Decision) -> list[str]:
    """What every email says of an incident: where, what, with whose job, and why that is taken so."""
    incident = history.incident
    on = f" on {incident.root.component}" if incident.root.component else ""
    drill = history.is_drill
    return [
        *field("Node", f"{incident.node_id} (pool {incident.pool})"),
        *field("Fault", f"{decided.fault}{on}"),
        *quoted("Evidence", incident.root.evidence),
        *(field("Drill", "an operator has injected this fault. What is done about it is real.") if drill else []),
        *(line for told in confirmations_in(history) for line in quoted("Confirmed", told)),
        *_saved(history),
        *field("Job", job_text(history)),
        *field("Why", decided.why),
    ]


def _saved(history: History) -> list[str]:
    """The place of the node's evidence, for a case with the vendor."""
    results = [turn.result for turn in history.turns if turn.result is not None]
    told = []
    for result in results:
        if isinstance(result.facts, EvidenceSaved) and result.facts.link:
            late = "" if result.outcome is Outcome.DONE else " (not seen to arrive in time; look there)"
            told += [link("Saved", f"{result.facts.link}{late}"), link("", result.facts.console)]
    return told


def told_by(
    history: History, decided: Decision, console_links: ConsoleLinks, code: Escalation | None = None
) -> list[str]:
    """Where to read more."""
    incident, code = history.incident, code or decided.escalation
    execution = console_links.execution(incident.incident_id)
    return [
        *([link("Runbook", console_links.runbook(code))] if code else []),
        link("Incident", f"nodeheal incidents show {incident.incident_id}"),
        *([link("Execution", execution)] if execution else []),
        link("Policy", incident.policy_version),
    ]


def _story_of(history: History) -> list[str]:
    """What happened so far."""
    start = history.incident.root.observed_at
    entries = [entry for entry in history.timeline if entry.kind != "progress"]
    left_out = len(entries) - _FIRST_LINES - _LAST_LINES
    story = [
        paragraph(plain(entry.text, 400), f"  {(entry.at - start).total_seconds():8.1f}  ", " " * 12)
        for entry in entries
    ]
    if left_out > 0:
        story[_FIRST_LINES:-_LAST_LINES] = [[f"  ({left_out} more lines: the incident has them all)"]]
    return ["What happened, in seconds after the fault:", *(line for lines in story for line in lines)]
