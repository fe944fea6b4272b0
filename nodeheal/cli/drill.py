"""`nodeheal inject`: a drill on a node that is well."""

import time
from typing import Annotated

import typer

from nodeheal.cli import connect
from nodeheal.cli.connect import FAILED, Table, Why, clearly
from nodeheal.cli.nodes import NodeName
from nodeheal.cli.say import say
from nodeheal.contract import names
from nodeheal.domain.node import Node
from nodeheal.ports import CommandStatus, Ports
from nodeheal.services.inject_fault import DRILL_SECONDS, drill_line, inject_fault

LOOK_EVERY_SECONDS = 1.0


def inject(
    node: NodeName,
    why: Why,
    xid: Annotated[int | None, typer.Option(min=1, max=999, help="the code of an NVIDIA Xid")] = None,
    line: Annotated[str | None, typer.Option(help="or the kernel's own words, as they would stand in dmesg")] = None,
    table: Table = names.TABLE,
) -> None:
    """A drill: have a node that is well report a fault. What follows is real: a reboot, and its job stopped."""
    reason = connect.on_record(why)
    with clearly():
        text = drill_line(xid, line)
        world = connect.ports(table)
        found, command_id = inject_fault(node, text, reason, world, connect.policy(), connect.drills())
        status = _wait(found, command_id, world)
    if status.state != "SUCCEEDED":
        say(f"{node} has not taken the drill ({status.state}); does its agent's configuration say `drills`?")
        raise typer.Exit(FAILED)
    say(f"injected on {node}: {text}")
    say(f"its incident will be in `nodeheal incidents list --pool {found.pool} --since 5m`")


def _wait(node: Node, command_id: str, world: Ports) -> CommandStatus:
    """What became of the command. A command that nobody has heard of yet is on its way."""
    give_up_at = time.monotonic() + DRILL_SECONDS
    while True:
        status = world.commands.look(node, command_id)
        if status.state in ("SUCCEEDED", "FAILED") or time.monotonic() >= give_up_at:
            return status
        time.sleep(LOOK_EVERY_SECONDS)
