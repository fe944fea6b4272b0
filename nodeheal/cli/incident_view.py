"""Incidents, as `nodeheal incidents list` and `show` tell of them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from nodeheal.cli.say import age
from nodeheal.cli.table import say_table
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Ending, IncidentState
from nodeheal.domain.humanize import lasting
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import Incident, short_id
from nodeheal.domain.review.review import Review, doing_now, shown_title, state_word, title_of

if TYPE_CHECKING:
    from nodeheal.services.notify.compose_needed import Part
    from nodeheal.services.operators.answer_approval import PendingQuestion

_ENDS = " .;:"


def row_of(incident: Incident) -> dict[str, str | bool | None]:
    """One line of a list, for programs."""
    return {
        "incident": incident.incident_id,
        "state": incident.state.value,
        "word": state_word(incident).value,
        "step": incident.step.value if incident.step and incident.is_under_way else None,
        "waits_for": incident.awaits.value if incident.awaits and incident.is_under_way else None,
        "ending": incident.ending.value if incident.ending else None,
        "opened_at": incident.opened_at.isoformat(),
        "closed_at": incident.closed_at.isoformat() if incident.closed_at else None,
        "node": incident.node_id,
        "pool": incident.pool,
        "job": incident.job_id,
        "fault": title_of(incident.root),
        "summary": incident.summary,
        "began_as_drill": incident.began_as_drill,
    }


def say_incidents(found: Sequence[Incident], now: datetime, *, is_wide: bool) -> None:
    """A list, for people."""
    head = ("INCIDENT", "AGE", "NODE", "POOL", "JOB", "STATE", "FAULT")
    say_table(head, [_cells(incident, now, is_wide) for incident in found], is_wide=is_wide)


def _cells(incident: Incident, now: datetime, is_wide: bool) -> tuple[str, ...]:
    name = incident.incident_id if is_wide else short_id(incident.incident_id)
    where = (incident.node_id, incident.pool, incident.job_id or "-")
    stands = doing_now(incident) or state_word(incident)
    return (name, age(incident.opened_at, now), *where, stands, shown_title(incident))


def story_of(
    review: Review, console: str, asked: "PendingQuestion | None" = None, to_do: "Sequence[Part]" = ()
) -> list[str]:
    """The review for people: what it asks, what is needed, what came of it, its facts, and its timeline.

    What is said once is not said again.
    """
    at = " ".join(filter(None, [review.component, f"serial {review.serial}" if review.serial else ""]))
    took = ", ".join(f"{name} {lasting(seconds)}" for name, seconds in review.phase_seconds.items())
    policies = ", then ".join(dict.fromkeys(one.policy_version for one in review.decisions))
    is_theirs = review.ending is Ending.HANDED_TO_A_HUMAN and review.state is not IncidentState.CLOSED
    facts = {
        "Summary": review.summary.removeprefix(f"{review.fault}: "),
        "Incident": review.incident_id,
        "Pool": review.pool,
        "Component": "" if review.asked_by_hand else at,
        "Asked by": review.asked_by_hand,
        "Begun": f"{review.fault_at:%Y-%m-%d %H:%M:%S} UTC",
        "Handed over" if is_theirs else "Ended": f"{review.closed_at:%Y-%m-%d %H:%M:%S} UTC"
        if review.closed_at
        else "not yet",
        "Took": took,
        "Confirmed": "; ".join(review.told.confirmed),
        "Lost": f"{review.lost_accelerator_hours:.2f} accelerator-hours",
        "Policy": policies,
        "Evidence": "  ".join(review.told.evidence),
        "Workflow": console,
        "Fault page": review.fault_page,
    }
    return [
        review.subject,
        *(["This is a drill."] if review.is_drill else []),
        "",
        *(question(asked, short_id(review.incident_id)) if asked is not None else []),
        *([*needed(to_do), ""] if to_do else []),
        *(f"{name:<12}{text}" for name, text in facts.items() if text),
        "",
        "Timeline, in seconds after the fault:",
        *_timeline(review, asked.asks if asked is not None else ""),
    ]


def question(asked: "PendingQuestion", short: str) -> list[str]:
    """What an incident asks, until when, and what each answer does."""
    return [
        f"Asks        {asked.asks}",
        f"Answer by   {asked.deadline_at:%Y-%m-%d %H:%M:%S} UTC; silence is no: then it is handed to a human",
        f"If yes      {asked.means[Answer.approve]}",
        f"If no       {asked.means[Answer.refuse]}",
        *(f"{answer.value.title():<12}nodeheal {answer} {short} --why …" for answer in Answer),
        "",
    ]


def needed(to_do: "Sequence[Part]") -> list[str]:
    """What a person has to do, as the email says it, with the commands to paste."""
    lines = [line for text, commands in to_do for line in (text, *commands)]
    return [f"{'' if number else 'Needed':<12}{line}" for number, line in enumerate(lines)]


def _timeline(review: Review, asks: str) -> Iterator[str]:
    """What happened, and why. A reason that stands above is referred to by where it stands."""
    decisions = {f"{one.step}: {one.reason}": one for one in review.decisions}
    above = {review.summary: "see Summary", asks: "see Asks"}
    for line in review.told.timeline:
        text = line.text
        if line.kind == "decision" and (taken := decisions.get(text)) is not None and taken.reason:
            # What follows an isolation has its reason, without the sentence about the isolation at its end.
            known = next((where for reason, where in above.items() if reason.startswith(taken.reason)), None)
            above.setdefault(taken.reason, f"same reason as {taken.step}")
            text = f"{taken.step}: {known or taken.reason.removeprefix(f'{review.fault}: ')}"
        elif line.kind == "event" and OPERATOR_REQUEST in line.text:
            text = "an operator asked for it"
        yield f"  {line.seconds:9.1f}  {text.rstrip(_ENDS)}"
