"""`nodeheal incidents`: what happened, why, how long it took, and what it adds up to."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import incident_list, incident_queries, incident_reports, incident_views, lookup, pages, replays
from nodeheal.cli import connect, incident_view, report
from nodeheal.cli.approvals import IncidentId
from nodeheal.cli.complete import PoolArgument, PoolOption
from nodeheal.cli.connect import AsJson, Table, Why, clearly
from nodeheal.cli.say import (
    After,
    Form,
    Limit,
    Output,
    form_of,
    page_of,
    refuse,
    say,
    say_data,
    say_json,
    say_more,
    say_rows,
)
from nodeheal.contract import acts, names
from nodeheal.domain.humanize import counted
from nodeheal.domain.review import review

if TYPE_CHECKING:
    from nodeheal.api.views import IncidentRow
    from nodeheal.ports import Ports

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
    limit: Limit = None,
    after: After = "",
    table: Table = names.TABLE,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show incidents, the newest first."""
    form = form_of(output, as_json)
    page, wanted = page_of(limit, after, form), [_word(text) for text in state or ()]
    with clearly():
        world = connect.ports(table)
        view = _incidents(world, pool, since, page, wanted)
        others = len(_incidents(world, pool, since).rows) if wanted and not view.rows else 0
    if form in (Form.json, Form.yaml):
        say_rows(view, page, form)
    elif not view.rows:
        say(_none_of(wanted, since, others))
    else:
        incident_view.say_incidents(view.rows, world.clock(), is_wide=form is Form.wide)
        say(f"{counted(len(view.rows), 'incident')} within {since}")
        say_more(view.next)


@app.command()
def show(incident: IncidentId, table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show one incident: each decision and its reason, how long each part took, and what it cost."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        name = lookup.incident_named(incident, world)
        unlinked = incident_queries.incident(name, world, lambda: connect.policy_copy(table))
        view = incident_views.LinkedIncident(**dict(unlinked), execution=connect.execution_url(name))
    if form in (Form.json, Form.yaml):
        say_data(view, form)
        return
    say(*incident_view.story_of(view, view.execution))


@app.command()
def close(incident: IncidentId, why: Why, table: Table = names.TABLE) -> None:
    """Close an incident that was handed to you, once its node is in service or the fault is dealt with.

    A node that nodeheal took out of service is given back with `nodeheal nodes release`, which closes its incident.
    """
    reason = connect.reason(why)
    with clearly():
        incident = lookup.incident_named(incident, connect.acting_ports(table))
        is_new = connect.do(acts.CloseIncident(incident=incident, why=reason), acts.IncidentClosed).is_new
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
    with clearly():
        world = connect.ports(table)
        incident_ids = [row.incident for row in _incidents(world, pool, since).rows]
        if form is ExportFormat.events:
            for line in _event_lines(incident_ids, world):
                say(line)
            return
        view = incident_reports.report(incident_ids, world, since, pool)
    if form is ExportFormat.json:
        say_json(view)
        return
    for line in report.as_markdown(view, f"{f'Pool {pool}' if pool else 'All pools'}, last {since}"):
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
        incident_ids = [row.incident for row in _incidents(world, pool, since).rows]
        view = incident_reports.part(serial, incident_ids, world, since)
    if form is Format.json:
        say_json(view)
        return
    for line in report.part_as_markdown(view):
        say(line)


def _word(text: str) -> "review.StateWord":
    """The word of a list for what is typed: `handed-over` is `handed over`. Refused where the list has no such word."""
    known = {_plain(word): word for word in review.StateWord}
    if _plain(text) not in known:
        refuse(f"--state: {text!r} is not one of {', '.join(STATES)}")
    return known[_plain(text)]


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalpha())


def _incidents(
    world: "Ports",
    pool: str | None,
    since: str,
    page: "pages.Page | None" = None,
    words: "Sequence[review.StateWord]" = (),
) -> "pages.Rows[IncidentRow]":
    """The incidents of the pool, or of all pools; without a page all of them."""
    pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
    begin = world.clock() - timedelta(seconds=connect.seconds_of(since))
    return incident_list.incidents(pools, world, begin, frozenset(words), page or pages.WHOLE)


def _none_of(states: Sequence[str], since: str, others: int) -> str:
    """`others`: how many there are in other states."""
    if not (states and others):
        return f"no incident within {since}"
    return f"no incident within {since} is {' or '.join(states)}; in other states: {others}"


def _event_lines(incident_ids: Sequence[str], world: "Ports") -> Iterator[str]:
    """A line for each event, oldest first, with the job that ran on the node."""
    for past in replays.recorded(incident_ids, world):
        yield json.dumps({"event": past.event.model_dump(mode="json"), "job_id": past.job_id})
