"""`nodeheal incidents`: what happened, why, how long it took, and what it adds up to."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer
from pydantic import TypeAdapter

from nodeheal.cli import connect
from nodeheal.cli.approvals import IncidentId
from nodeheal.cli.connect import AsJson, PoolOption, Table, Why, clearly
from nodeheal.cli.lookup import incident_named
from nodeheal.cli.report import as_markdown, part_as_markdown
from nodeheal.cli.say import Form, Output, age, form_of, say, say_data, say_json
from nodeheal.cli.table import say_table
from nodeheal.contract import names
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.humanize import counted
from nodeheal.domain.recovery.incident import Incident, short_id
from nodeheal.domain.review.incident_stats import IncidentStats, summarize
from nodeheal.domain.review.part_record import PartRecord
from nodeheal.domain.review.review import DecisionTaken, Review, state_word, title_of
from nodeheal.ports import Ports
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.review_incidents import list_incidents, part_of, review_incident

app = typer.Typer(no_args_is_help=True, help="Incidents: what happened, why, and how it ended.")

Since = Annotated[str, typer.Option(help="opened within: 90s, 30m, 2h or 7d")]
_reviews: TypeAdapter[Review] = TypeAdapter(Review)
_stats: TypeAdapter[IncidentStats] = TypeAdapter(IncidentStats)
_parts_on_record: TypeAdapter[PartRecord] = TypeAdapter(PartRecord)


class Format(StrEnum):
    """How an export is written."""

    markdown = "markdown"
    json = "json"


class ExportFormat(StrEnum):
    """The same, and the events that led to the incidents, as `nodeheal replay` reads them."""

    markdown = "markdown"
    json = "json"
    events = "events"


@app.command("list")
def list_all(
    pool: PoolOption = None,
    state: Annotated[
        list[IncidentState] | None,
        typer.Option(case_sensitive=False, help="in this state; may be given more than once"),
    ] = None,
    since: Since = "7d",
    table: Table = names.TABLE,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show incidents, the newest first."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        found = _found(world, pool, since, state)
    if form in (Form.json, Form.yaml):
        say_data([_row(incident) for incident in found], form)
    elif not found:
        say(f"no incident within {since}")
    else:
        head, is_wide = ("INCIDENT", "AGE", "NODE", "POOL", "JOB", "STATE", "FAULT"), form is Form.wide
        say_table(head, [_cells(incident, world.clock(), is_wide) for incident in found], is_wide=is_wide)
        say(f"{counted(len(found), 'incident')} within {since}")


@app.command()
def show(incident: IncidentId, table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show one incident: each decision and its reason, how long each part took, and what it cost."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        review = review_incident(incident_named(incident, world), world)
        console = connect.execution_url(review.incident_id)
    if form in (Form.json, Form.yaml):
        say_data({**_reviews.dump_python(review, mode="json"), "execution": console}, form)
        return
    say(*story_of(review, console))


@app.command()
def close(incident: IncidentId, why: Why, table: Table = names.TABLE) -> None:
    """Close an incident that was handed to you, once its node is in service or the fault is dealt with.

    A node that nodeheal took out of service is given back with `nodeheal nodes release`, which closes its incident.
    """
    reason = connect.on_record(why)
    with clearly():
        world = connect.ports(table)
        incident = incident_named(incident, world)
        is_new = close_incident(incident, reason, world)
    say(f"{incident} is closed" + ("" if is_new else " already; nothing was changed"))


@app.command()
def export(
    pool: PoolOption = None,
    since: Since = "30d",
    form: Annotated[
        ExportFormat, typer.Option("--format", help="for people, for programs, or for `nodeheal replay`")
    ] = ExportFormat.markdown,
    table: Table = names.TABLE,
) -> None:
    """Write a report of all incidents of a time: times to recovery, causes, endings, and nodes that fail again."""
    with clearly():
        world = connect.ports(table)
        known = _found(world, pool, since, None)
        if form is ExportFormat.events:
            for line in _event_lines(known, world):
                say(line)
            return
        reviews = [review_incident(found.incident_id, world) for found in known]
    stats = summarize(reviews)
    if form is ExportFormat.json:
        told = [_reviews.dump_python(review, mode="json") for review in reviews]
        say_json({"since": since, "pool": pool, "tally": _stats.dump_python(stats, mode="json"), "incidents": told})
        return
    for line in as_markdown(reviews, stats, f"{f'Pool {pool}' if pool else 'All pools'}, last {since}"):
        say(line)


@app.command()
def rma(
    serial: Annotated[str, typer.Argument(help="the accelerator's serial, as `incidents show` names it")],
    pool: PoolOption = None,
    since: Since = "90d",
    form: Annotated[Format, typer.Option("--format", help="for people or for programs")] = Format.markdown,
    table: Table = names.TABLE,
) -> None:
    """Write the record of one accelerator for its vendor: faults, what was tried, diagnostics, where the logs are."""
    with clearly():
        world = connect.ports(table)
        record = part_of(serial, _found(world, pool, since, None), world)
    if form is Format.json:
        say_json({"since": since, **_parts_on_record.dump_python(record, mode="json")})
        return
    for line in part_as_markdown(record, since):
        say(line)


def _found(world: Ports, pool: str | None, since: str, states: list[IncidentState] | None) -> list[Incident]:
    pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
    begin = world.clock() - timedelta(seconds=connect.seconds_of(since))
    return list_incidents(world, pools, states or list(IncidentState), begin)


def _event_lines(known: Sequence[Incident], world: Ports) -> Iterator[str]:
    """A line for each event, oldest first, with the job that ran on the node."""
    histories = [world.incidents.history(incident.incident_id) for incident in reversed(known)]
    events = [(event, history.incident.job_id) for history in histories for event in history.events]
    for event, job_id in sorted(events, key=lambda one: one[0].observed_at):
        yield json.dumps({"event": event.model_dump(mode="json"), "job_id": job_id})


def _row(incident: Incident) -> dict[str, str | None]:
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
