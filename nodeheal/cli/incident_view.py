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
from nodeheal.domain.recovery.incident import short_id

if TYPE_CHECKING:
    from nodeheal.api.incident_views import IncidentReview, IncidentView, NeededRow, QuestionView
    from nodeheal.api.views import IncidentRow

_ENDS = " .;:"


def say_incidents(rows: "Sequence[IncidentRow]", now: datetime, *, is_wide: bool) -> None:
    """A list, for people."""
    head = ("INCIDENT", "AGE", "NODE", "POOL", "JOB", "STATE", "FAULT")
    say_table(head, [_cells(row, now, is_wide) for row in rows], is_wide=is_wide)


def _cells(row: "IncidentRow", now: datetime, is_wide: bool) -> tuple[str, ...]:
    name = row.incident if is_wide else short_id(row.incident)
    fault = f"{row.fault} (drill)" if row.began_as_drill else row.fault
    return (name, age(row.opened_at, now), row.node, row.pool, row.job or "-", row.doing or row.word, fault)


def story_of(review: "IncidentView", console: str) -> list[str]:
    """An incident for people: what it asks, what is needed, what came of it, its facts, and its timeline.

    `console`: where its workflow is shown. What is said once is not said again.
    """
    asked = review.asked
    at = " ".join(filter(None, [review.component, f"serial {review.serial}" if review.serial else ""]))
    took = ", ".join(f"{name} {lasting(seconds)}" for name, seconds in review.phase_seconds.items())
    policies = ", then ".join(dict.fromkeys(decision.policy_version for decision in review.decisions))
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
        *([*needed(review.needed), ""] if review.needed else []),
        *(f"{name:<12}{text}" for name, text in facts.items() if text),
        "",
        "Timeline, in seconds after the fault:",
        *_timeline(review, asked.asks if asked is not None else ""),
    ]


def question(asked: "QuestionView", short: str) -> list[str]:
    """What an incident asks, until when, and what each answer does."""
    return [
        f"Asks        {asked.asks}",
        f"Answer by   {asked.deadline_at:%Y-%m-%d %H:%M:%S} UTC; silence is no: then it is handed to a human",
        f"If yes      {asked.means.approve}",
        f"If no       {asked.means.refuse}",
        *(f"{answer.value.title():<12}nodeheal {answer} {short} --why …" for answer in Answer),
        "",
    ]


def needed(to_do: "Sequence[NeededRow]") -> list[str]:
    """What a person has to do, as the email says it, with the commands to paste."""
    lines = [line for row in to_do for line in (row.text, *(f"  {command}" for command in row.commands))]
    return [f"{'' if number else 'Needed':<12}{line}" for number, line in enumerate(lines)]


def _timeline(review: "IncidentReview", asks: str) -> Iterator[str]:
    """What happened, and why. A reason that stands above is referred to by where it stands."""
    decisions = {f"{decision.step}: {decision.reason}": decision for decision in review.decisions}
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
