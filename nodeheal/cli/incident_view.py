"""Incidents, as `nodeheal incidents list` and `show` tell of them."""

from collections.abc import Sequence
from datetime import datetime

from nodeheal.cli.say import age
from nodeheal.cli.table import say_table
from nodeheal.domain.recovery.incident import Incident, short_id
from nodeheal.domain.review.review import DecisionTaken, Review, state_word, title_of


def row_of(incident: Incident) -> dict[str, str | None]:
    """One line of a list, for programs."""
    return {
        "incident": incident.incident_id,
        "state": incident.state.value,
        "ending": incident.ending.value if incident.ending else None,
        "opened_at": incident.opened_at.isoformat(),
        "closed_at": incident.closed_at.isoformat() if incident.closed_at else None,
        "node": incident.node_id,
        "pool": incident.pool,
        "job": incident.job_id,
        "fault": title_of(incident.root),
        "summary": incident.summary,
    }


def say_incidents(found: Sequence[Incident], now: datetime, *, is_wide: bool) -> None:
    """A list, for people."""
    head = ("INCIDENT", "AGE", "NODE", "POOL", "JOB", "STATE", "FAULT")
    say_table(head, [_cells(incident, now, is_wide) for incident in found], is_wide=is_wide)


def _cells(incident: Incident, now: datetime, is_wide: bool) -> tuple[str, ...]:
    name = incident.incident_id if is_wide else short_id(incident.incident_id)
    where = (incident.node_id, incident.pool, incident.job_id or "-")
    return (name, age(incident.opened_at, now), *where, state_word(incident), title_of(incident.root))


def story_of(review: Review, console: str) -> list[str]:
    """The review for people, a paragraph for each question."""
    drill = ["This is a drill.", ""] if review.is_drill else []
    component = f" on {review.component}" if review.component and not review.asked_by_hand else ""
    serial = f", serial {review.serial}" if review.serial else ""
    return [
        review.subject,
        "",
        *drill,
        f"Incident   {review.incident_id} ({review.state.value})",
        f"Node       {review.node_id} (pool {review.pool})",
        f"Fault      {review.fault}{component}{serial}",
        *([f"Asked by   {review.asked_by_hand}"] if review.asked_by_hand else []),
        f"Job        {review.job}",
        f"Begun      {review.fault_at:%Y-%m-%d %H:%M:%S} UTC",
        f"Ended      {f'{review.closed_at:%Y-%m-%d %H:%M:%S} UTC' if review.closed_at else 'not yet'}",
        f"Summary    {review.summary or '-'}",
        f"Answered   {'; '.join(review.told.answers) or 'nothing was asked'}",
        f"Attempts   {'; '.join(review.told.attempts) or 'none reserved'}",
        f"Confirmed  {'; '.join(review.told.confirmed) or 'the node was not asked'}",
        f"Evidence   {'  '.join(review.told.evidence) or 'none saved'}",
        f"Lost       {review.lost_accelerator_hours:.2f} accelerator-hours",
        f"Workflow   {console}",
        f"Fault page {review.fault_page}",
        *_parts(review),
    ]


def _decided(one: DecisionTaken, review: Review) -> list[str]:
    after = (one.at - review.fault_at).total_seconds()
    became = [f"             {one.outcome}: {one.result}"] if one.outcome else []
    return [f"  {after:9.1f}  {one.step}: {one.reason} (policy {one.policy_version})", *became]


def _parts(review: Review) -> list[str]:
    phases = [f"  {seconds:9.1f}  {name}" for name, seconds in review.phase_seconds.items()]
    taken = [line for one in review.decisions for line in _decided(one, review)]
    story = [f"  {line.seconds:9.1f}  {line.text}" for line in review.told.timeline]
    return [
        "",
        "How long each part took, in seconds:",
        *phases,
        "",
        "What was decided, in seconds after the fault:",
        *(taken or ["  nothing yet"]),
        "",
        "What happened, in seconds after the fault:",
        *story,
    ]
