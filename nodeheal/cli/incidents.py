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
from nodeheal.contract import names

if TYPE_CHECKING:
    from nodeheal.api.pages import Page, Rows
    from nodeheal.api.views import IncidentRow
    from nodeheal.domain.review.review import StateWord
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
    from nodeheal.cli.incident_view import say_incidents
    from nodeheal.domain.humanize import counted

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
        say_incidents(view.rows, world.clock(), is_wide=form is Form.wide)
        say(f"{counted(len(view.rows), 'incident')} within {since}")
        say_more(view.next)


@app.command()
def show(incident: IncidentId, table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show one incident: each decision and its reason, how long each part took, and what it cost."""
    from nodeheal.api import incident_queries
    from nodeheal.api.incident_views import LinkedIncident
    from nodeheal.api.lookup import incident_named
    from nodeheal.cli.incident_view import story_of

    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        name = incident_named(incident, world)
        incident_view = incident_queries.incident(name, world, lambda: connect.policy_copy(table))
        view = LinkedIncident(**dict(incident_view), execution=connect.execution_url(name))
    if form in (Form.json, Form.yaml):
        say_data(view, form)
        return
    say(*story_of(view, view.execution))


@app.command()
def close(incident: IncidentId, why: Why, table: Table = names.TABLE) -> None:
    """Close an incident that was handed to you, once its node is in service or the fault is dealt with.

    A node that nodeheal took out of service is given back with `nodeheal nodes release`, which closes its incident.
    """
    from nodeheal.api.lookup import incident_named
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
    from nodeheal.api import incident_reports
    from nodeheal.cli.report import as_markdown

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
    for line in as_markdown(view, f"{f'Pool {pool}' if pool else 'All pools'}, last {since}"):
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
    from nodeheal.api import incident_reports
    from nodeheal.cli.report import part_as_markdown

    with clearly():
        world = connect.ports(table)
        incident_ids = [row.incident for row in _incidents(world, pool, since).rows]
        view = incident_reports.part(serial, incident_ids, world, since)
    if form is Format.json:
        say_json(view)
        return
    for line in part_as_markdown(view):
        say(line)


def _word(text: str) -> "StateWord":
    """The word of a list for what is typed: `handed-over` is `handed over`. Refused where the list has no such word."""
    from nodeheal.domain.review.review import StateWord

    known = {_plain(word): word for word in StateWord}
    if _plain(text) not in known:
        refuse(f"--state: {text!r} is not one of {', '.join(STATES)}")
    return known[_plain(text)]


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalpha())


def _incidents(
    world: "Ports", pool: str | None, since: str, page: "Page | None" = None, words: "Sequence[StateWord]" = ()
) -> "Rows[IncidentRow]":
    """The incidents of the pool, or of all pools; without a page all of them."""
    from nodeheal.api import incident_list
    from nodeheal.api.pages import WHOLE

    pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
    begin = world.clock() - timedelta(seconds=connect.seconds_of(since))
    return incident_list.incidents(pools, world, begin, frozenset(words), page or WHOLE)


def _none_of(states: Sequence[str], since: str, others: int) -> str:
    """`others`: how many there are in other states."""
    if not (states and others):
        return f"no incident within {since}"
    return f"no incident within {since} is {' or '.join(states)}; in other states: {others}"


def _event_lines(incident_ids: Sequence[str], world: "Ports") -> Iterator[str]:
    """A line for each event, oldest first, with the job that ran on the node."""
    from nodeheal.api.replays import recorded

    for past in recorded(incident_ids, world):
        yield json.dumps({"event": past.event.model_dump(mode="json"), "job_id": past.job_id})
