"""`nodeheal nodes`: see the nodes of a pool, and give back what nodeheal has taken out of service."""

import time
from collections.abc import Callable
from typing import Annotated

import typer

from nodeheal.api import lookup, node_list, node_queries, own_acts, pages, records
from nodeheal.cli import cluster_views, complete, connect, kubernetes, node_acts, node_view, slurm
from nodeheal.cli import node_list as node_lines
from nodeheal.cli.complete import PoolArgument
from nodeheal.cli.connect import AsJson, Table, Why, clearly
from nodeheal.cli.node_acts import DryRun, NodeName, WhyOrDryRun, Yes, facts_of, given_reason, goes_on, whole_node
from nodeheal.cli.say import (
    After,
    Form,
    Limit,
    Output,
    age,
    form_of,
    page_of,
    refuse,
    say,
    say_data,
    say_more,
    say_rows,
)
from nodeheal.cli.table import say_table
from nodeheal.contract import acts, names
from nodeheal.contract.vocabulary import Availability, Provider, SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.humanize import counted
from nodeheal.parsers.slurm import SlurmNode

app = typer.Typer(no_args_is_help=True, help="Nodes: see them, enrol them, take them out of service, give them back.")


SeenNode = Annotated[
    str, typer.Argument(metavar="NODE", help="its id, or the beginning of it", autocompletion=complete.nodes)
]
States = Annotated[
    list[Availability] | None,
    typer.Option(case_sensitive=False, help="only nodes of this word; may be given more than once"),
]
NO_JOB = "none"
TAG_SECONDS = 10


@app.command("list")
def list_nodes(
    pool: PoolArgument = None,
    state: States = None,
    with_slurm: Annotated[
        bool, typer.Option("--slurm", help="add why Slurm gives a node no work; takes seconds")
    ] = False,
    limit: Limit = None,
    after: After = "",
    table: Table = names.TABLE,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show nodes: their state and why, their job and their open incident."""
    form = form_of(output, as_json)
    page, on_slurm = page_of(limit, after, form), None
    with clearly():
        world = connect.ports(table)
        pools = [connect.known_pool(pool, world)] if pool is not None else list(world.fleet_index.pools())
        pauses, now = world.pauses.read(), world.clock()
        view = node_list.nodes(pools, pauses, world, state or (), page)
        paused = list(filter(None, [pauses.why_pool_is_paused(name, now) for name in pools]))
        if with_slurm:
            on_slurm = slurm.on_slurm_of([records.node(row.node, world) for row in view.rows])
    if form in (Form.json, Form.yaml):
        if on_slurm is None:
            say_rows(view, page, form)
            return

        rows = tuple(cluster_views.NodeRowWithSlurm(**dict(row), slurm=on_slurm[row.node]) for row in view.rows)
        say_rows(pages.Rows[cluster_views.NodeRowWithSlurm](rows=rows, next=view.next), page, form)
        return
    say(*paused)
    in_words = {node: known.summary for node, known in (on_slurm or {}).items() if known is not None}
    node_lines.say_nodes(view.rows, now, in_words, has_pool=pool is None, is_wide=form is Form.wide)
    say_more(view.next)


@app.command()
def unenrolled(table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show nodes that report and are not enrolled. nodeheal does not act on them, and forgets them after a week."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        rows, now = node_list.unenrolled(world), world.clock()
    if form in (Form.json, Form.yaml):
        say_data(rows, form)
        return
    cells = [(row.node, row.pool, row.cluster, row.agent, age(row.last_seen, now)) for row in rows]
    say_table(("NODE", "POOL, AS IT SAYS", "CLUSTER", "AGENT", "SEEN"), cells, is_wide=form is Form.wide)
    say(f"{counted(len(rows), 'node')}; to enrol one: nodeheal nodes enroll NODE --pool POOL --why …")


@app.command()
def show(node: SeenNode, table: Table = names.TABLE, as_json: AsJson = False, output: Output = None) -> None:
    """Show one node: its state, why and since when, and what nodeheal may still do with it."""
    form = form_of(output, as_json)
    with clearly():
        world = connect.ports(table)
        name = lookup.node_named(node, world)
        view = node_queries.node(name, world, connect.policy())
        record = records.node(name, world)
        on_slurm, on_kubernetes = slurm.slurm_node(record), kubernetes.view_of(kubernetes.node_words(record))
    if form in (Form.json, Form.yaml):
        say_data(
            cluster_views.NodeViewWithCluster(**dict(view), slurm=slurm.view_of(on_slurm), kubernetes=on_kubernetes),
            form,
        )
        return
    for line in node_view.as_text(view, connect.dashboard_url()):
        say(line)
    if on_slurm is not None:
        words = on_slurm if isinstance(on_slurm, str) else f"{on_slurm.name} is {slurm.node_words(on_slurm)}"
        say(f"Slurm        {words}")
    if on_kubernetes is not None:
        say(f"Kubernetes   {on_kubernetes.summary}")


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
    cluster: Annotated[str | None, typer.Option(help="its cluster, where its agent has not reported yet")] = None,
    scheduler: Annotated[
        SchedulerKind | None, typer.Option(help="its scheduler, where its agent has not reported yet")
    ] = None,
    job: Annotated[str | None, typer.Option(help="`none`: the job on its record is over")] = None,
    table: Table = names.TABLE,
) -> None:
    """Let nodeheal act on a node: set the tags that IAM asks for. A second call changes what it names."""
    if job not in (None, NO_JOB):
        refuse(f"--job {job}: give `{NO_JOB}`; a job is recorded when it is started")
    reason = connect.reason(why)
    with clearly():
        act = acts.Enroll(
            node=node,
            pool=pool,
            why=reason,
            provider=provider,
            is_spare=spare,
            accelerators=accelerators,
            has_no_job=job == NO_JOB,
            rack=rack,
            cluster=cluster,
            scheduler=scheduler,
        )
        # Only who may set the tags lets nodeheal act on a machine; no function may.
        marked = own_acts.tag_node(act, connect.ports(table), connect.marks())
        say(*marked)
        recorded = _record_tagged(act) if marked else connect.do(act, acts.NodeRecorded)
    say(*recorded.changes)
    what = "a spare" if recorded.is_spare else "a node"
    is_new = marked or recorded.changes
    say(f"{node} is enrolled as {what} of pool {pool}" + ("" if is_new else "; it was already"))
    if not recorded.has_reported:
        say("its agent has not reported yet: nodeheal acts on it once it has reported")


def _record_tagged(act: "acts.Enroll", sleep: Callable[[float], None] = time.sleep) -> "acts.NodeRecorded":
    """Have it recorded. EC2 and SSM may take seconds until everybody reads a tag that was just set."""
    for _ in range(TAG_SECONDS):
        try:
            return connect.do(act, acts.NodeRecorded)
        except NotAccepted:
            sleep(1.0)
    return connect.do(act, acts.NodeRecorded)


@app.command()
def release(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Return a node to service that nodeheal took out. A request by hand that still waits is withdrawn instead."""
    reason = given_reason(why, dry_run=dry_run)
    with clearly():
        world = connect.acting_ports(table)
        act = acts.Release(node=whole_node(node, world).node_id, why=reason)
        is_wanted = goes_on(facts_of(act, world, table), dry_run=dry_run, yes=yes)
    if not is_wanted:
        return
    with clearly():
        freed = connect.do(act, acts.NodeRecorded)
    if freed.withdrawn:
        say(f"{freed.withdrawn} is withdrawn: {node} was not taken out of service yet, and is not touched")
        return
    say(f"{node} is {freed.state} now; nothing has checked it: `nodeheal nodes diagnose {node} --why …` does")
    on_slurm = slurm.slurm_node(records.node(node, world))
    if isinstance(on_slurm, SlurmNode) and not on_slurm.is_in_service:
        say(f"Slurm gives it no work, for a reason that is not nodeheal's: {slurm.node_words(on_slurm)}")


app.command()(node_acts.drain)
app.command()(node_acts.isolate)
app.command()(node_acts.reboot)
app.command()(node_acts.replace)
app.command()(node_acts.diagnose)
app.command()(node_acts.retire)
