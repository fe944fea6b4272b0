"""`nodeheal inject`: a drill on a node that is well."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import own_acts
from nodeheal.cli import connect
from nodeheal.cli.connect import FAILED, Table, clearly
from nodeheal.cli.node_acts import DryRun, NodeName, WhyOrDryRun, Yes, given_reason, goes_on, whole_node
from nodeheal.cli.say import say
from nodeheal.contract import names
from nodeheal.contract.json_text import read_json
from nodeheal.domain.faults.drill import LARGEST_GPU, DcgmDrill, parse_dcgm_drill

if TYPE_CHECKING:
    from nodeheal.domain.fleet.node import Node
    from nodeheal.ports import Ports
    from nodeheal.ports.commands import CommandStatus

LOOK_EVERY_SECONDS = 1.0


def inject(
    node: NodeName,
    why: WhyOrDryRun = None,
    xid: Annotated[int | None, typer.Option(min=1, max=999, help="the code of an NVIDIA Xid")] = None,
    line: Annotated[str | None, typer.Option(help="or the kernel's own words, as they would stand in dmesg")] = None,
    dcgm: Annotated[
        str | None, typer.Option(metavar="FIELD=VALUE", help="or a value in DCGM, e.g. xid=79 or 230=79")
    ] = None,
    gpu: Annotated[int, typer.Option(min=0, max=LARGEST_GPU, help="of which GPU, by DCGM's id (with --dcgm)")] = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    table: Table = names.TABLE,
) -> None:
    """Drill: have a healthy node report a fault. What follows is real: where the pool acts, job and node stop."""
    reason = connect.on_record(given_reason(why, dry_run=dry_run))
    with clearly():
        fault = _fault(xid, line, dcgm, gpu)
        world, policy = connect.ports(table), connect.policy()
        drill = own_acts.preview_drill(whole_node(node, world).node_id, fault, world, policy)
    facts = [f"{fact.label:<8}{fact.text}" for fact in drill.consequences.facts]
    if not goes_on(facts, dry_run=dry_run, yes=yes):
        return
    with clearly():
        record, command_id = own_acts.begin_drill(drill, reason, world, policy)
        status = _wait(record, command_id, world)
    if status.state != "SUCCEEDED":
        say(f"{node} has not taken the drill ({status.state}){_why_not(status)}")
        raise typer.Exit(FAILED)
    say(f"injected on {node}: {fault}", *drill.foretold.lines)
    if drill.foretold.is_seen:
        say(f"an incident that comes of it is in `nodeheal incidents list {record.pool} --since 5m`")


def _fault(xid: int | None, line: str | None, dcgm: str | None, gpu: int) -> str | DcgmDrill:
    if dcgm is None:
        return own_acts.kernel_line(xid, line)
    if xid is not None or line is not None:
        raise ValueError("give one of --xid, --line and --dcgm")
    return parse_dcgm_drill(dcgm, gpu)


def _why_not(status: "CommandStatus") -> str:
    """What the node itself says, where it has come so far."""
    if status.state == "FAILED":
        try:
            return f": {read_json(status.output)['refused']}"
        except (ValueError, KeyError, TypeError):
            return "; does its agent's configuration say `drills`, and is its version as new as this one?"
    return "; nobody knows yet whether it will: the command expires within a minute"


def _wait(node: "Node", command_id: str, world: "Ports") -> "CommandStatus":
    """What became of the command. A command that nobody has heard of yet is on its way."""
    give_up_at = time.monotonic() + own_acts.DRILL_SECONDS
    while True:
        status = world.commands.look(node, command_id)
        if status.state in ("SUCCEEDED", "FAILED") or time.monotonic() >= give_up_at:
            return status
        time.sleep(LOOK_EVERY_SECONDS)
