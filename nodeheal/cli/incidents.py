"""`nodeheal incidents`: what happened, why, how long it took, and what it adds up to."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.cli import connect
from nodeheal.cli.approvals import IncidentId
from nodeheal.cli.complete import PoolArgument, PoolOption
from nodeheal.cli.connect import AsJson, Table, Why, clearly
from nodeheal.cli.say import Form, Output, form_of, refuse, say, say_data, say_json
from nodeheal.contract import names
from nodeheal.contract.vocabulary import IncidentState

if TYPE_CHECKING:
    from nodeheal.domain.recovery.incident import Incident
    from nodeheal.domain.review.review import Review
    from nodeheal.ports import Ports
    from nodeheal.services.notify.compose_needed import Part
    from nodeheal.services.operators.answer_approval import PendingQuestion

app = typer.Typer(no_args_is_help=True, help="Incidents: what happened, why, and how it ended.")

# The words of domain/review/review.py, which takes many modules; a test compares them.
STATES = ("open", "waiting", "recovered", "restarted", "done", "observed", "handed over", "closed", "escalated")
Since = Annotated[str, typer.Option(help="opened within: 90s, 30m, 2h or 7d")]


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
    pool: PoolArgument = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help=f"in this state, as the list has it: {', '.join(STATES)}; may be given more than once",
            autocompletion=lambda: list(STATES),
        ),
    ] = None,
    since: Since = "7d",
    table: Table = names.TABLE,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show incidents, the newest first."""
    from nodeheal.cli.incident_view import row_of, say_incidents
    from nodeheal.domain.humanize import counted
    from nodeheal.domain.review.review import state_word

    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        wanted = [_word(text) for text in state or ()]
        known = _found(world, pool, since)
        found = [incident for incident in known if not wanted or state_word(incident) in wanted]
    if form in (Form.json, Form.yaml):
        say_data([row_of(incident) for incident in found], form)
    elif not found:
        say(_none_of(wanted, since, len(known)))
    else:
        say_incidents(found, world.clock(), is_wide=form is Form.wide)
        say(f"{counted(len(found), 'incident')} within {since}")


@app.command()
def show(incident: IncidentId, table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show one incident: each decision and its reason, how long each part took, and what it cost."""
    from nodeheal.cli.incident_view import story_of
    from nodeheal.cli.lookup import incident_named
    from nodeheal.contract.type_adapters import adapter_of
    from nodeheal.domain.review.review import Review
    from nodeheal.services.operators.review_incidents import review_incident

    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        review = review_incident(incident_named(incident, world), world)
        asked = _asked(review, world)
        to_do = _needed(review, world, table)
        console = connect.execution_url(review.incident_id)
    if form in (Form.json, Form.yaml):
        told = adapter_of(Review).dump_python(review, mode="json")
        question = adapter_of(type(asked)).dump_python(asked, mode="json") if asked is not None else None
        lines = [{"text": text, "commands": [line.strip() for line in commands]} for text, commands in to_do]
        say_data({**told, "asked": question, "needed": lines, "execution": console}, form)
        return
    say(*story_of(review, console, asked, to_do))


def _asked(review: "Review", world: "Ports") -> "PendingQuestion | None":
    if review.state is not IncidentState.WAITING:
        return None
    # Only here: what an answer does takes many modules.
    from nodeheal.services.operators.answer_approval import asked_now

    return asked_now(review.incident_id, world)


def _needed(review: "Review", world: "Ports", table: str) -> "list[Part]":
    if review.state is IncidentState.CLOSED:
        return []
    # Only here, too: it reads everything that the email is composed from.
    from nodeheal.services.operators.needed_now import needed_now

    return needed_now(review.incident_id, world, lambda: connect.policy_copy(table))


@app.command()
def close(incident: IncidentId, why: Why, table: Table = names.TABLE) -> None:
    """Close an incident that was handed to you, once its node is in service or the fault is dealt with.

    A node that nodeheal took out of service is given back with `nodeheal nodes release`, which closes its incident.
    """
    from nodeheal.cli.lookup import incident_named
    from nodeheal.contract.acts import CloseIncident, IncidentClosed

    reason = connect.reason(why)
    with clearly():
        incident = incident_named(incident, connect.acting_ports(table))
        is_new = connect.do(CloseIncident(incident=incident, why=reason), IncidentClosed).is_new
    say(f"{incident} is closed" + ("" if is_new else " already; nothing was changed"))


@app.command()
def export(
    pool: PoolArgument = None,
    since: Since = "30d",
    form: Annotated[
        ExportFormat, typer.Option("--format", help="for people, for programs, or for `nodeheal replay`")
    ] = ExportFormat.markdown,
    table: Table = names.TABLE,
) -> None:
    """Write a report of all incidents of a time: times to recovery, causes, endings, and nodes that fail again."""
    from nodeheal.cli.report import as_markdown
    from nodeheal.contract.type_adapters import adapter_of
    from nodeheal.domain.review.incident_stats import IncidentStats, summarize
    from nodeheal.domain.review.review import Review
    from nodeheal.services.operators.review_incidents import review_incident

    with clearly():
        world = connect.ports(table)
        known = _found(world, pool, since)
        if form is ExportFormat.events:
            for line in _event_lines(known, world):
                say(line)
            return
        reviews = [review_incident(found.incident_id, world) for found in known]
    stats = summarize(reviews)
    if form is ExportFormat.json:
        told = [adapter_of(Review).dump_python(review, mode="json") for review in reviews]
        tally = adapter_of(IncidentStats).dump_python(stats, mode="json")
        say_json({"since": since, "pool": pool, "tally": tally, "incidents": told})
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
    from nodeheal.cli.report import part_as_markdown
    from nodeheal.contract.type_adapters import adapter_of
    from nodeheal.domain.review.part_record import PartRecord
    from nodeheal.services.operators.review_incidents import part_of

    with clearly():
        world = connect.ports(table)
        record = part_of(serial, _found(world, pool, since), world)
    if form is Format.json:
        say_json({"since": since, **adapter_of(PartRecord).dump_python(record, mode="json")})
        return
    for line in part_as_markdown(record, since):
        say(line)


def _word(text: str) -> str:
    """The word of a list for what is typed: `handed-over` is `handed over`. Refused where the list has no such word."""
    known = {_plain(word): word for word in STATES}
    if _plain(text) not in known:
        refuse(f"--state: {text!r} is not one of {', '.join(STATES)}")
    return known[_plain(text)]


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalpha())


def _found(world: "Ports", pool: str | None, since: str) -> "list[Incident]":
    from nodeheal.services.operators.review_incidents import list_incidents

    pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
    begin = world.clock() - timedelta(seconds=connect.seconds_of(since))
    return list_incidents(world, pools, list(IncidentState), begin)


def _none_of(states: Sequence[str], since: str, others: int) -> str:
    """`others`: how many there are in other states."""
    if not (states and others):
        return f"no incident within {since}"
    return f"no incident within {since} is {' or '.join(states)}; in other states: {others}"


def _event_lines(known: "Sequence[Incident]", world: "Ports") -> Iterator[str]:
    """A line for each event, oldest first, with the job that ran on the node."""
    histories = [world.incidents.history(incident.incident_id) for incident in reversed(known)]
    events = [(event, history.incident.job_id) for history in histories for event in history.events]
    for event, job_id in sorted(events, key=lambda one: one[0].observed_at):
        yield json.dumps({"event": event.model_dump(mode="json"), "job_id": job_id})
