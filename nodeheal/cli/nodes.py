"""`nodeheal nodes`: see the nodes of a pool, and give back what nodeheal has taken out of service."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any

import typer

from nodeheal.cli import complete, connect, node_acts
from nodeheal.cli.connect import AsJson, PoolArgument, Table, Why, clearly
from nodeheal.cli.lookup import node_named
from nodeheal.cli.node_acts import DryRun, NodeName, Yes, goes_on
from nodeheal.cli.node_view import as_json_of, as_text
from nodeheal.cli.say import Form, Output, age, form_of, iso, refuse, say, say_data
from nodeheal.cli.slurm import Reports, clusters_of, node_at, node_json, node_words, reports_of, slurm_node
from nodeheal.cli.table import say_table
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState, Provider
from nodeheal.domain.fleet.enrolment import Enrolment
from nodeheal.domain.fleet.liveness import apply_heartbeat
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.recovery.incident import short_id
from nodeheal.parsers.slurm import SlurmNode
from nodeheal.services.intake.enroll_node import enroll_node
from nodeheal.services.operators.describe_act import describe_release
from nodeheal.services.operators.look_at_node import look_at_node
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.withdraw_request import withdraw_request
from nodeheal.services.saving import node_of

app = typer.Typer(no_args_is_help=True, help="Nodes: see them, enrol them, take them out of service, give them back.")


SeenNode = Annotated[
    str, typer.Argument(metavar="NODE", help="its id, or the beginning of it", autocompletion=complete.nodes)
]
States = Annotated[
    list[NodeState] | None,
    typer.Option(case_sensitive=False, help="only nodes in this state; may be given more than once"),
]
NO_JOB = "none"


@app.command("list")
def list_nodes(
    pool: PoolArgument = None,
    state: States = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="add why Slurm gives a node no work; takes seconds")] = False,
    table: Table = names.TABLE,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show nodes: their state and why, their job and their open incident."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
        nodes = [node for name in pools for node in world.nodes.in_pool(name)]
        heartbeats = world.heartbeats.newest()
        now = world.clock()
        paused = list(filter(None, [world.pools.get(name).why_paused(now) for name in pools]))
        reports = reports_of(clusters_of(nodes)) if slurm else None
    heard = [apply_heartbeat(node, heartbeats.get(node.instance_id), now) for node in nodes]
    silent = {name for name, beat in heartbeats.items() if beat.is_missed(now)}
    rows = [_row(node, now, reports, silent) for node in heard if not state or node.state in state]
    if form in (Form.json, Form.yaml):
        say_data(rows, form)
        return
    say(*paused)
    _say_nodes(rows, now, has_pool=pool is None, is_wide=form is Form.wide)


@app.command()
def unenrolled(table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show nodes that report and are not enrolled. nodeheal does not act on them, and forgets them after a week."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        found, now = world.nodes.unenrolled(), world.clock()
    rows = [
        {
            "node": node.node_id,
            "pool": node.pool,
            "cluster": node.cluster,
            "agent": node.agent_version,
            "last_seen": iso(node.last_seen),
        }
        for node in found
    ]
    if form in (Form.json, Form.yaml):
        say_data(rows, form)
        return
    seen = [(node.node_id, node.pool, node.cluster, node.agent_version, age(node.last_seen, now)) for node in found]
    say_table(("NODE", "POOL, AS IT SAYS", "CLUSTER", "AGENT", "SEEN"), seen, is_wide=form is Form.wide)
    say(f"{counted(len(rows), 'node')}; to enrol one: nodeheal nodes enroll NODE --pool POOL --why …")


def _row(node: Node, now: datetime, reports: Reports | None, silent: Collection[str]) -> dict[str, Any]:
    until = node.paused_until if node.is_paused(now) else None
    return {
        "node": node.node_id,
        "pool": node.pool,
        "state": node.state.value,
        "spare": node.is_spare,
        "job": node.job_id,
        "incident": node.open_incident,
        "last_seen": iso(node.last_seen) if node.has_reported else None,
        "silent": node.instance_id in silent,
        "rack": node.rack or None,
        "paused_until": iso(until),
        "paused_why": node.paused_why if until else None,
        "reason": node.state_reason if node.has_reported else f"its agent has never reported; {node.state_reason}",
        **({} if reports is None else {"slurm": node_json(node_at(node, reports))}),
    }


def _say_nodes(rows: list[dict[str, Any]], now: datetime, *, has_pool: bool, is_wide: bool) -> None:
    pool_head = ("POOL",) if has_pool else ()
    wide_head = ("RACK",) if is_wide else ()
    head = ("NODE", *pool_head, "STATE", "SPARE", "JOB", "INCIDENT", "SEEN", *wide_head, "WHY")
    say_table(head, [_cells(row, now, has_pool=has_pool, is_wide=is_wide) for row in rows], is_wide=is_wide)
    counts = Counter(str(row["state"]) for row in rows)
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none in this state"
    say(f"{counted(len(rows), 'node')}: {told}")


def _cells(row: dict[str, Any], now: datetime, *, has_pool: bool, is_wide: bool) -> list[str]:
    incident = row["incident"] and (row["incident"] if is_wide else short_id(row["incident"]))
    seen = age(datetime.fromisoformat(row["last_seen"]) if row["last_seen"] else None, now)
    seen += " (silent)" if row["silent"] else ""
    paused = f"paused until {row['paused_until']} ({row['paused_why']})" if row["paused_until"] else ""
    on_slurm = f"Slurm: {row['slurm']['summary']}" if row.get("slurm") else ""
    return [
        row["node"],
        *([row["pool"]] if has_pool else []),
        row["state"],
        "spare" if row["spare"] else "-",
        row["job"] or "-",
        incident or "-",
        seen,
        *([row["rack"] or "-"] if is_wide else []),
        "; ".join(filter(None, [paused, row["reason"], on_slurm])),
    ]


@app.command()
def show(node: SeenNode, table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show one node: its state, why and since when, and what nodeheal may still do with it."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        view = look_at_node(node_named(node, world), world, connect.policy())
        on_slurm = slurm_node(view.node)
    if form in (Form.json, Form.yaml):
        say_data({**as_json_of(view), "slurm": node_json(on_slurm)}, form)
        return
    for line in as_text(view, connect.ports(table).clock()):
        say(line)
    if on_slurm is not None:
        told = on_slurm if isinstance(on_slurm, str) else f"{on_slurm.name} is {node_words(on_slurm)}"
        say(f"Slurm        {told}")


@app.command()
def enroll(
    node: NodeName,
    pool: Annotated[str, typer.Option(help="the pool that its agent reports")],
    why: Why,
    provider: Annotated[Provider | None, typer.Option(help="checked against what its agent says")] = None,
    spare: Annotated[
        bool, typer.Option("--spare/--no-spare", help="keep it free, to take the place of a broken node")
    ] = False,
    accelerators: Annotated[
        int | None, typer.Option(min=0, help="how many it has, where its agent cannot tell")
    ] = None,
    rack: Annotated[
        str | None, typer.Option(help="its rack, so that a failure of the whole rack is recognised")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="the ECS cluster, where its agent has not reported yet")] = None,
    job: Annotated[str | None, typer.Option(help="`none`: the job on its record is over")] = None,
    table: Table = names.TABLE,
) -> None:
    """Let nodeheal act on a node: set the tags that IAM asks for. A second call changes what it names."""
    if job not in (None, NO_JOB):
        refuse(f"--job {job}: only `{NO_JOB}` can be said; jobs are recorded where they are started")
    reason = connect.on_record(why)
    with clearly():
        said = Enrolment(pool, reason, provider, spare, accelerators, job == NO_JOB, rack, cluster)
        recorded, done = enroll_node(node, said, connect.ports(table), connect.marks())
    for line in done:
        say(line)
    what = "a spare" if recorded.is_spare else "a node"
    say(f"{node} is enrolled as {what} of pool {pool}" + ("" if done else "; it was so already"))
    if not recorded.has_reported:
        say("its agent has not reported yet: nodeheal looks after it from its first word on")


@app.command()
def release(node: NodeName, why: Why, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE) -> None:
    """Return a node to service that nodeheal took out. A request by hand that still waits is withdrawn instead."""
    reason = connect.on_record(why)
    with clearly():
        told = describe_release(node_of(node, connect.ports(table)))
    if not goes_on(told, dry_run=dry_run, yes=yes):
        return
    with clearly():
        world = connect.ports(table)
        withdrawn = withdraw_request(node, reason, world)
        freed = None if withdrawn else release_node(node, reason, world)
    if freed is None:
        say(f"{withdrawn} is withdrawn: {node} was not taken out of service yet, and is not touched")
        return
    say(f"{node} is {freed.state} now")
    seen = slurm_node(freed)
    if isinstance(seen, SlurmNode) and not seen.is_in_service:
        say(f"Slurm gives it no work, for a reason that is not nodeheal's: {node_words(seen)}")


app.command()(node_acts.drain)
app.command()(node_acts.isolate)
app.command()(node_acts.reboot)
app.command()(node_acts.replace)
app.command()(node_acts.diagnose)
app.command()(node_acts.retire)
