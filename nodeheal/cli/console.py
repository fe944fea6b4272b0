"""`nodeheal console`: the pages of the console, on this machine, with the caller's own credentials."""

import secrets
import tempfile
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.adapters.aws import failures
from nodeheal.adapters.aws.calls import client
from nodeheal.adapters.ecs import container_instances
from nodeheal.api import client as api_client
from nodeheal.api import records, views
from nodeheal.cli import connect, doctor, job_list, kubernetes, slurm
from nodeheal.cli.connect import Table, clearly
from nodeheal.cli.say import refuse, say
from nodeheal.console import app, gate
from nodeheal.contract import names
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain import actor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodeheal.domain.fleet.node import Node

LOOPBACK = "127.0.0.1"
PORT = 8473


def console(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="on 127.0.0.1")] = PORT,
    host: Annotated[
        str | None,
        typer.Option(help="127.0.0.1 or localhost, for a browser that knows no names under localhost"),
    ] = None,
    browse: Annotated[bool, typer.Option("--browse", help="open it in this machine's browser")] = False,
    table: Table = names.TABLE,
) -> None:
    """Serve the console on this machine: pages to look, to answer and to act, with your own credentials.

    Nobody else gets in: it listens on 127.0.0.1 and asks for the key of the address that it prints. Ctrl-C ends it.
    """
    import uvicorn
    from botocore.exceptions import BotoCoreError, ClientError

    with clearly():
        deployment = _deployment(table)
    if host not in (None, LOOPBACK, "localhost"):
        refuse(f"--host {host}: it is 127.0.0.1 or localhost")
    session = gate.Session(host or f"{secrets.token_hex(4)}.localhost", port, deployment)
    pages = app.console_app(session, (BotoCoreError, ClientError))
    server = uvicorn.Server(uvicorn.Config(pages, LOOPBACK, port, log_level="warning", server_header=False))
    try:
        listening = server.config.bind_socket()
    except SystemExit:  # it has said why on stderr already
        refuse(f"--port {port}: it is in use; give another one")
    address = f"http://{session.addresses[0]}/enter?key={session.key}"
    say(f"The console of {deployment.where}, as {deployment.who}:", "", f"  {address}", "", "Ctrl-C ends it.")
    with opened(address) if browse else nullcontext():
        server.run([listening])


@contextmanager
def opened(address: str) -> "Iterator[None]":
    """Open the address in this machine's browser, by a file: others can read a command line, and the key is in it."""
    import webbrowser

    with tempfile.TemporaryDirectory(prefix="nodeheal-") as directory:  # only its owner can look into it
        page = Path(directory, "console.html")
        page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
        webbrowser.open(page.as_uri())
        yield


def _deployment(table: str) -> "app.Deployment":
    """Whose credentials act, and where. One read shows that they do."""
    sts = client("sts")
    who = sts.get_caller_identity()
    world = connect.ports(table)
    world.fleet_index.pools()
    return app.Deployment(
        api_client.Client(world, lambda: connect.policy_copy(table), connect.control_plane()),
        who=actor.actor_of(who["Arn"]).name,
        where=f"account {who['Account']}, {sts.meta.region_name}",
        in_force=connect.policy,
        in_words=lambda error: failures.in_words(error, table),
        documents=cache(connect.policy_documents),
        look=partial(doctor.findings, table),
        manifests=connect.kubernetes_manifests,
        scheduler_words=lambda node: list(_scheduler_words(records.node(node, world))),
        scheduler_jobs=lambda pools: [
            views.SchedulerJobRow.model_validate(row, from_attributes=True)
            for row in job_list.scheduler_jobs(pools or world.fleet_index.pools(), world)
        ],
    )


def _scheduler_words(node: "Node") -> "Iterator[views.Fact]":
    """What the node's scheduler says of it, or why that is not known."""
    if node.cluster.kind is SchedulerKind.ECS:
        ask = partial(container_instances.words_of, client("ecs"), node.cluster.name, node.instance_id)
        yield views.Fact(label="ECS", text=slurm.answer_or_why(ask, "not known: "))
    if (on_slurm := slurm.view_of(slurm.slurm_node(node))) is not None:
        yield views.Fact(label="Slurm", text=on_slurm.summary)
    if (on_kubernetes := kubernetes.view_of(kubernetes.node_words(node))) is not None:
        yield views.Fact(label="Kubernetes", text=on_kubernetes.summary)
