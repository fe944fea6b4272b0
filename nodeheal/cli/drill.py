"""`nodeheal inject`: a drill on a node that is well."""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.cli import connect
from nodeheal.cli.connect import FAILED, Table, clearly
from nodeheal.cli.node_acts import DryRun, NodeName, WhyOrDryRun, Yes, goes_on, on_record, whole_node
from nodeheal.cli.say import say
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Family
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
    """Drill: have a healthy node report a fault. What follows is real: its job stops, and it reboots."""
    from nodeheal.services.operators.describe_act import describe_drill
    from nodeheal.services.operators.inject_fault import inject_fault, may_inject

    reason = on_record(why, dry_run=dry_run)
    with clearly():
        fault = _fault(xid, line, dcgm, gpu)
        world, policy = connect.ports(table), connect.policy()
        found = may_inject(whole_node(node, world), policy)
        told = describe_drill(found, str(fault), world)
    if not goes_on(told, dry_run=dry_run, yes=yes):
        return
    with clearly():
        found, command_id = inject_fault(node, fault, reason, world, policy, connect.drills())
        status = _wait(found, command_id, world)
    if status.state != "SUCCEEDED":
        say(f"{node} has not taken the drill ({status.state}){_why_not(status)}")
        raise typer.Exit(FAILED)
    say(f"injected on {node}: {fault}")
    if isinstance(fault, DcgmDrill):
        _say_who_sees_it(fault)
        return
    _say_what_follows(found, fault)


def _say_who_sees_it(drill: DcgmDrill) -> None:
    from nodeheal.domain.faults.catalog import find
    from nodeheal.parsers.dcgm_injected import XID_FIELD, health_code

    code = health_code(drill.field, drill.value)
    row = find(Family.dcgm, code) if code else None
    if row is None:
        say("no health watch of DCGM 4.6 reports this value: nodeheal does not see it, and opens no incident.")
        say("DCGM's policies, dcgm-exporter and other clients see it if they read this field")
        return
    if drill.field == XID_FIELD:
        say("DCGM 4.4.1 and newer keep it until the host engine starts again; older ones do not watch XIDs")
    else:
        say("it holds until the driver's next value, so the check may miss it")
    say(f"`dcgmi health` reports it as {code}, and nodeheal's check `dcgm` asks every five minutes:")
    say(f"then an incident opens, marked as a drill, and its first action is {row.action}")


def _say_what_follows(node: "Node", line: str) -> None:
    from nodeheal.services.operators.inject_fault import repeats

    known, listed = repeats(node, line), f"`nodeheal incidents list {node.pool} --since 5m`"
    if known is None:
        say(f"its incident will be in {listed}")
        return
    say(f"{known} has dealt with this fault on this boot: it repeats that, and opens an incident of its own")
    say("only where nodeheal may act now and might not then, or where the fault climbs when it comes often;")
    say(f"see `nodeheal incidents show {known}` and {listed}")


def _fault(xid: int | None, line: str | None, dcgm: str | None, gpu: int) -> str | DcgmDrill:
    if dcgm is None:
        from nodeheal.services.operators.inject_fault import drill_line

        return drill_line(xid, line)
    if xid is not None or line is not None:
        raise ValueError("give one of --xid, --line and --dcgm")
    return parse_dcgm_drill(dcgm, gpu)


def _why_not(status: "CommandStatus") -> str:
    """What the node itself says, where it has come so far."""
    if status.state == "FAILED":
        try:
            return f": {json.loads(status.output)['refused']}"
        except (ValueError, KeyError, TypeError):
            return "; does its agent's configuration say `drills`, and is its version as new as this one?"
    return "; nobody knows yet whether it will: the command expires within a minute"


def _wait(node: "Node", command_id: str, world: "Ports") -> "CommandStatus":
    """What became of the command. A command that nobody has heard of yet is on its way."""
    from nodeheal.services.operators.inject_fault import DRILL_SECONDS

    give_up_at = time.monotonic() + DRILL_SECONDS
    while True:
        status = world.commands.look(node, command_id)
        if status.state in ("SUCCEEDED", "FAILED") or time.monotonic() >= give_up_at:
            return status
        time.sleep(LOOK_EVERY_SECONDS)
