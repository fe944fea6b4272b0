"""What an operator does with a node by hand: drain, isolate, reboot, replace, diagnose, retire. Each tells first."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import acts as api_acts
from nodeheal.api import lookup, own_acts, pool_sweep, records
from nodeheal.cli import complete, connect
from nodeheal.cli.connect import Table, clearly
from nodeheal.cli.say import say
from nodeheal.contract import acts, names
from nodeheal.contract.vocabulary import Ending
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.humanize import counted
from nodeheal.domain.recovery import incident as incident_record

if TYPE_CHECKING:
    from nodeheal.domain.fleet.node import Node
    from nodeheal.ports import Ports

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="its id: i-… or mi-…", autocompletion=complete.nodes)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what it would do, and do nothing")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask on a terminal")]
WhyOrDryRun = Annotated[
    str | None, typer.Option("--why", help="the reason: it is recorded with your name. Only --dry-run needs none")
]
NOT_DONE = 1
LOOK_EVERY_SECONDS = 2.0
Level = Annotated[
    int | None,
    typer.Option(min=1, max=4, help="dcgmi diag -r: 2 minutes, 3 an hour, 4 hours; else the policy's"),
]


def drain(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Give a node no new work, and isolate it when its job has ended. `nodes release` gives it back."""
    _request(acts.Drain, node, why, table, dry_run=dry_run, yes=yes)


def isolate(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Take a node out of service now. Its job stops, and goes on elsewhere where nodes are free."""
    _request(acts.Isolate, node, why, table, dry_run=dry_run, yes=yes)


def reboot(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Isolate a node, reboot it, diagnose it and return it to service."""
    _request(acts.Reboot, node, why, table, dry_run=dry_run, yes=yes)


def replace(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Isolate a node and put another one in its place."""
    _request(acts.Replace, node, why, table, dry_run=dry_run, yes=yes)


def diagnose(
    node: NodeName,
    why: WhyOrDryRun = None,
    level: Level = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="even where a job runs on it: the job stops")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    table: Table = names.TABLE,
) -> None:
    """Diagnose a free node. It is out of service meanwhile, and back if it passes."""
    _request(acts.Diagnose, node, why, table, dry_run=dry_run, yes=yes, level=level, may_stop_job=anyway)


def retire(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Give a node up for good: nodeheal may not act on it any more, and `nodes enroll` refuses its id. No way back."""
    reason = given_reason(why, dry_run=dry_run)
    with clearly():
        world = connect.acting_ports(table)
        known = whole_node(node, world)
        act = acts.Retire(node=node, why=reason)
        if not goes_on(facts_of(act, world, table), dry_run=dry_run, yes=yes):
            return
        state = connect.do(act, acts.NodeRecorded).state
        say(*own_acts.untag_node(known, connect.marks()), f"{node} is {state} now")


def _request(
    kind: "Callable[..., acts.NodeRequest]",
    node: str,
    why: str | None,
    table: str,
    *,
    dry_run: bool,
    yes: bool,
    **more: object,
) -> None:
    reason = given_reason(why, dry_run=dry_run)
    with clearly():
        world = connect.acting_ports(table)
        act = kind(node=whole_node(node, world).node_id, why=reason, **more)
        if not goes_on(facts_of(act, world, table), dry_run=dry_run, yes=yes):
            return
        done = connect.do(act, acts.RecoveryRequested)
    show = f"`nodeheal incidents show {incident_record.short_id(done.incident)}`"
    if done.is_own:
        say(f"asked for; it is incident {done.incident}: {show}")
    else:
        say(f"{act.node} has an open incident since a moment ago: it is part of {done.incident} now: {show}")


def given_reason(why: str | None, *, dry_run: bool) -> str:
    """The reason. Refused where it is empty, but for a dry run."""
    return connect.reason("dry run" if why is None and dry_run else why or "")


def facts_of(act: "acts.Act", world: "Ports", table: str) -> list[str]:
    """What the act will do, a line for each fact."""
    shown = api_acts.preview(act, world, connect.policy_copy(table))
    return [f"{fact.label:<8}{fact.text}" for fact in shown.facts]


def whole_node(name: str, world: "Ports") -> "Node":
    """The node of this id. An act takes no beginning of an id: the error says which nodes begin so."""
    from itertools import islice

    try:
        return records.node(name, world)
    except NotFound:
        begun = list(islice(lookup.node_ids(world, name), 5)) if name else []
        if not begun:
            raise
        raise NotFound(f"no node {name}; an act takes the whole id: {', '.join(begun)}") from None


def goes_on(facts: Sequence[str], *, dry_run: bool, yes: bool) -> bool:
    """Say what will happen; on a terminal, ask. Without a terminal nobody can answer, and the command is the answer."""
    if dry_run:
        say(*facts, "dry run: nothing was asked for")
        return False
    is_asked = not yes and sys.stdin.isatty()
    if is_asked:
        say(*facts)
        if not typer.confirm("Go on?"):
            say("nothing was asked for")
            raise typer.Exit(NOT_DONE)
    return True


def sweep_pool(
    pool: str,
    why: str,
    level: int | None,
    table: str,
    *,
    dry_run: bool,
    yes: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Diagnose the free nodes of a pool, one after another. Returns how many did not pass. Raises ValueError."""
    world = connect.acting_ports(table)
    plan = pool_sweep.planned_sweep(connect.known_pool(pool, world), level, world, connect.policy_copy(table))
    free = plan.free
    facts = [
        f"pool    {pool}: {len(free)} of {counted(plan.nodes, 'node')} are free; the others are left out",
        f"checks  {plan.checks}",
        "then    each is isolated, diagnosed and returned, one after another; one that does not pass stays out",
    ]
    if not goes_on(facts, dry_run=dry_run, yes=yes):
        return 0
    failed = 0
    for number, name in enumerate(free, 1):
        if not pool_sweep.is_free(name, world):
            say(f"{number} of {len(free)}  {name}  left out: it is not free any more")
            continue
        try:
            done = connect.do(acts.Diagnose(node=name, why=why, level=level), acts.RecoveryRequested)
        except NotAccepted as error:
            failed += 1
            say(f"{number} of {len(free)}  {name}  {error}")
            continue
        incident = _ended(done.incident, world, sleep)
        has_passed = incident.ending is Ending.RECOVERED
        failed += not has_passed
        say(f"{number} of {len(free)}  {name}  {'passed' if has_passed else incident.summary}")
    say(f"{counted(len(free), 'free node')} of pool {pool}, {len(free) - failed} passed, {failed} did not")
    return failed


def _ended(incident_id: str, world: "Ports", sleep: Callable[[float], None]) -> "incident_record.Incident":
    """The incident, once it is over. Waits as long as that takes: each of its steps has a deadline of its own."""
    while (incident := world.incidents.incident(incident_id)).is_under_way:
        sleep(LOOK_EVERY_SECONDS)
    return incident
