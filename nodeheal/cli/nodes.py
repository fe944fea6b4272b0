"""`nodeheal nodes`: see the nodes of a pool, and give back what nodeheal has taken out of service."""

import json
import sys
from typing import Annotated

import typer

from nodeheal.cli import connect
from nodeheal.cli.connect import Table, Why, clearly
from nodeheal.cli.say import say
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.incident import incident_id_of
from nodeheal.services.release_node import release_node
from nodeheal.services.request_action import request_action

app = typer.Typer(
    no_args_is_help=True, help="The nodes, in your AWS account (credentials and Region as for the AWS CLI)."
)


@app.command("list")
def list_nodes(
    pool: Annotated[str, typer.Argument(help="the pool")],
    table: Table = names.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Every node of a pool: its state and why, its job, its open incident."""
    with clearly():
        nodes = connect.ports(table).nodes.in_pool(pool)
    rows = [
        {
            "node": node.node_id,
            "state": node.state.value,
            "job": node.job_id,
            "incident": node.open_incident,
            "last_seen": node.last_seen.isoformat(timespec="seconds"),
            "reason": node.state_reason,
        }
        for node in nodes
    ]
    if as_json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    for row in rows:
        told = f"{row['node']}  {row['state']:<11}  job {row['job'] or '-'}  incident {row['incident'] or '-'}"
        sys.stdout.write(f"{told}  seen {row['last_seen']}  {row['reason']}\n")
    if not rows:
        sys.stdout.write(f"no node of pool {pool} has reported yet\n")


@app.command()
def release(node: str, why: Why, table: Table = names.TABLE) -> None:
    """Put a node that nodeheal took out of service back to work: it is repaired."""
    _free(node, why, table, retire=False)


@app.command()
def retire(node: str, why: Why, table: Table = names.TABLE) -> None:
    """Give a node up for good, and its slot of the disruption budget back to the pool."""
    _free(node, why, table, retire=True)


@app.command()
def isolate(node: str, why: Why, table: Table = names.TABLE) -> None:
    """Take a node out of service: drained, its gang stopped, until somebody gives it back."""
    _ask(node, Action.ISOLATE, why, table)


@app.command()
def reboot(node: str, why: Why, table: Table = names.TABLE) -> None:
    """Isolate, reboot, prove and return a node, as a recovery does."""
    _ask(node, Action.REBOOT, why, table)


@app.command()
def replace(node: str, why: Why, table: Table = names.TABLE) -> None:
    """Put another node in its place, as a recovery does."""
    _ask(node, Action.REPLACE, why, table)


def _ask(node: str, action: Action, why: str, table: str) -> None:
    reason = connect.on_record(why)
    with clearly():
        event = request_action(node, action, reason, connect.ports(table))
        connect.put_request(event)
    say(f"asked for; it is incident {incident_id_of(event)}: `nodeheal incidents show {incident_id_of(event)}`")


def _free(node: str, why: str, table: str, *, retire: bool) -> None:
    with clearly():
        freed = release_node(node, why, connect.ports(table), retire=retire)
    sys.stdout.write(f"{node} is {freed.state} now\n")
