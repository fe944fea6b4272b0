"""`nodeheal pools`: the pools and what nodeheal may do in them."""

from typing import Annotated

import typer

from nodeheal.api import queries
from nodeheal.cli import complete, connect, status_view
from nodeheal.cli.connect import FAILED, AsJson, Table, clearly
from nodeheal.cli.node_acts import DryRun, Level, WhyOrDryRun, Yes, given_reason, sweep_pool
from nodeheal.cli.say import Form, Output, form_of, say, say_data
from nodeheal.cli.table import say_table
from nodeheal.contract import names

app = typer.Typer(no_args_is_help=True, help="Pools of nodes: their size, budget and breaker.")


@app.command("list")
def list_pools(table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show every pool: its mode, its nodes, the slots that are taken of its disruption budget, its breaker."""
    form = form_of(output, as_json)
    with clearly():
        world, policy = connect.ports(table), connect.policy_copy(table)
        pauses = world.pauses.read()
        rows = [
            queries.pool(name, pauses, world, policy, world.job_notes.in_pool(name, live_only=True))
            for name in world.fleet_index.pools()
        ]
    if form in (Form.json, Form.yaml):
        say_data(rows, form)
    elif not rows:
        say("no pool yet: no node has reported, or was enrolled")
    else:
        say_table(
            status_view.POOL_HEAD,
            [status_view.pool_cells(row, world.clock()) for row in rows],
            is_wide=form is Form.wide,
        )
        say(*status_view.why_extra(rows))


@app.command()
def sweep(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="the pool", autocompletion=complete.pools)],
    why: WhyOrDryRun = None,
    level: Level = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    table: Table = names.TABLE,
) -> None:
    """Diagnose the free nodes of a pool, one after another. The exit code is 1 where one did not pass.

    Each node is out of service while it is diagnosed, and takes a slot of the disruption budget.
    """
    reason = given_reason(why, dry_run=dry_run)
    with clearly():
        if sweep_pool(pool, reason, level, table, dry_run=dry_run, yes=yes):
            raise typer.Exit(FAILED)
