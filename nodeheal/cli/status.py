"""`nodeheal status`: how everything stands, on one screen."""

import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import queries
from nodeheal.cli import connect, status_view, watch
from nodeheal.cli.complete import PoolArgument
from nodeheal.cli.connect import AsJson, Table, clearly
from nodeheal.cli.say import Form, Output, form_of, refuse, say_data
from nodeheal.contract import names

if TYPE_CHECKING:
    from nodeheal.api.views import FleetView


def status(
    pool: PoolArgument = None,
    is_watched: Annotated[bool, typer.Option("--watch", "-w", help="refresh the screen; keys act, q quits")] = False,
    every: Annotated[float, typer.Option(min=1, help="with --watch: seconds between two looks")] = 3.0,
    table: Table = names.TABLE,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show the pools, what is under way, the jobs, and what waits for you."""
    form = form_of(output, as_json)
    if is_watched and form in (Form.json, Form.yaml):
        refuse("--watch: not with --json or -o; it draws a screen for people")
    if is_watched:
        watch.watch_status(lambda: look(pool, table), table, every)
        return

    with clearly():
        view = look(pool, table)
    if form in (Form.json, Form.yaml):
        say_data(view, form)
        return
    width = None if form is Form.wide or not sys.stdout.isatty() else get_terminal_size().columns
    sys.stdout.write("".join(f"{line}\n" for line in status_view.as_lines(view, width)))


def look(pool: str | None, table: str) -> "FleetView":
    """The pools as they are now. Raises ValueError for a pool that is not known."""
    world = connect.ports(table)
    pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
    return queries.fleet(pools, world, connect.policy_copy(table))
