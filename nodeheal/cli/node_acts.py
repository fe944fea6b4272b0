"""What an operator does with a node by hand: drain, isolate, reboot, replace, diagnose, retire. Each tells first."""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.cli import complete, connect
from nodeheal.cli.connect import Table, clearly
from nodeheal.cli.say import refuse, say
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Action, Ending, SchedulerKind

if TYPE_CHECKING:
    from nodeheal.domain.fleet.node import Node
    from nodeheal.domain.recovery.incident import Incident
    from nodeheal.ports import Ports

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="its id: i-… or mi-…", autocompletion=complete.nodes)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what it would do, and do nothing")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask on a terminal")]
WhyOrDryRun = Annotated[
    str | None, typer.Option("--why", help="the reason: it is recorded with your name. Only --dry-run needs none")
]
TAKEN_SECONDS = 10  # from the bus to the table takes one, with a cold start three
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

    def why_not(found: "Node") -> str:
        told = f"{node} is Slurm's, which drains it itself: scontrol update NodeName=… State=DRAIN Reason=…"
        return told if found.scheduler is SchedulerKind.SLURM else ""

    _ask(node, Action.ISOLATE, why, table, kind=names.DRAIN, why_not=why_not, dry_run=dry_run, yes=yes)


def isolate(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Take a node out of service now. Its job stops, and goes on elsewhere where nodes are free."""
    _ask(node, Action.ISOLATE, why, table, dry_run=dry_run, yes=yes)


def reboot(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Isolate a node, reboot it, diagnose it and return it to service."""
    _ask(node, Action.REBOOT, why, table, dry_run=dry_run, yes=yes)


def replace(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Isolate a node and put another one in its place."""
    _ask(node, Action.REPLACE, why, table, dry_run=dry_run, yes=yes)


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

    def why_not(found: "Node") -> str:
        told = f"{node} runs job {found.job_id}: give --anyway to stop it, or wait until it has ended"
        return told if found.job_id and not anyway else ""

    kind = names.DIAGNOSE
    _ask(node, Action.ISOLATE, why, table, kind=kind, level=level, why_not=why_not, dry_run=dry_run, yes=yes)


def retire(
    node: NodeName, why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, table: Table = names.TABLE
) -> None:
    """Give a node up for good: nodeheal may not act on it any more, and `nodes enroll` refuses its id. No way back."""
    from nodeheal.services.operators.describe_act import describe_retirement
    from nodeheal.services.operators.retire_node import retire_node

    reason = on_record(why, dry_run=dry_run)
    with clearly():
        world = connect.acting_ports(table)
        told = describe_retirement(whole_node(node, world), world)
    if not goes_on(told, dry_run=dry_run, yes=yes):
        return
    with clearly():
        gone, done = retire_node(node, reason, world, connect.marks())
    say(*done, f"{node} is {gone.state} now")


def _ask(
    node: str,
    action: Action,
    why: str | None,
    table: str,
    *,
    kind: str = "",
    level: int | None = None,
    why_not: "Callable[[Node], str]" = lambda node: "",
    dry_run: bool,
    yes: bool,
) -> None:
    from nodeheal.domain.recovery.incident import incident_id_of, short_id
    from nodeheal.services.operators.describe_act import describe_act, why_not_now
    from nodeheal.services.operators.request_action import request_action, taken_by

    reason = on_record(why, dry_run=dry_run)
    with clearly():
        world = connect.acting_ports(table)
        found, policy = whole_node(node, world), connect.policy_copy(table)
        if wrong := why_not(found):
            refuse(wrong)
        event = request_action(node, action, reason, world, kind=kind, level=level)
        if held := why_not_now(found, action, world, policy):
            raise ValueError(held)
        told = describe_act(found, action, kind, world, policy, level)
    if not goes_on(told, dry_run=dry_run, yes=yes):
        return
    with clearly():
        connect.put_request(event)
        taken = connect.within(TAKEN_SECONDS, partial(taken_by, event, world))
    own = incident_id_of(event)
    show = f"`nodeheal incidents show {short_id(taken or own)}`"
    if taken is None:
        say(f"asked for; it was not taken within {TAKEN_SECONDS} s. It will be incident {own}: {show}")
    elif taken == own:
        say(f"asked for; it is incident {own}: {show}")
    else:
        say(f"{node} has an open incident since a moment ago: it is part of {taken} now and begins nothing: {show}")


def on_record(why: str | None, *, dry_run: bool) -> str:
    """The reason with who gives it. Refused where it is empty, but for a dry run."""
    return connect.on_record("dry run" if why is None and dry_run else why or "")


def whole_node(name: str, world: "Ports") -> "Node":
    """The node of this id. An act takes no beginning of an id: the error says which nodes begin so."""
    from nodeheal.cli.lookup import node_ids
    from nodeheal.domain.errors import NotFound
    from nodeheal.services.saving import node_of

    try:
        return node_of(name, world)
    except NotFound:
        begun = [known for known in node_ids(world) if name and known.startswith(name)]
        if not begun:
            raise
        raise NotFound(f"no node {name}; an act takes the whole id: {', '.join(begun[:5])}") from None


def goes_on(told: list[str], *, dry_run: bool, yes: bool) -> bool:
    """Say what will happen; on a terminal, ask. Without a terminal nobody can answer, and the command is the answer."""
    if dry_run:
        say(*told, "dry run: nothing was asked for")
        return False
    is_asked = not yes and sys.stdin.isatty()
    if is_asked:
        say(*told)
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
    from nodeheal.domain.humanize import counted
    from nodeheal.services.operators.describe_act import how_long_checks_take, why_pool_not_now
    from nodeheal.services.operators.request_action import request_action, taken_by
    from nodeheal.services.saving import node_of

    world = connect.acting_ports(table)
    now, pauses = world.clock(), world.pauses.read()
    known = world.nodes.in_pool(connect.known_pool(pool, world))
    if held := why_pool_not_now(pool, world):
        raise ValueError(held)
    free = [node.node_id for node in known if node.is_available(now, pauses)]
    told = [
        f"pool    {pool}: {len(free)} of {counted(len(known), 'node')} are free; the others are left out",
        f"checks  {how_long_checks_take(pool, level, connect.policy_copy(table), len(free))}",
        "then    each is isolated, diagnosed and returned, one after another; one that does not pass stays out",
    ]
    if not goes_on(told, dry_run=dry_run, yes=yes):
        return 0
    failed = 0
    for number, name in enumerate(free, 1):
        if not node_of(name, world).is_available(world.clock(), world.pauses.read()):
            say(f"{number} of {len(free)}  {name}  left out: it is not free any more")
            continue
        event = request_action(name, Action.ISOLATE, why, world, kind=names.DIAGNOSE, level=level)
        connect.put_request(event)
        taken = connect.within(TAKEN_SECONDS, partial(taken_by, event, world), sleep)
        incident = _ended(taken, world, sleep) if taken is not None else None
        has_passed = incident is not None and incident.ending is Ending.RECOVERED
        failed += not has_passed
        became = incident.summary if incident is not None else f"the request was not taken within {TAKEN_SECONDS} s"
        say(f"{number} of {len(free)}  {name}  {'passed' if has_passed else became}")
    say(f"{counted(len(free), 'free node')} of pool {pool}, {len(free) - failed} passed, {failed} did not")
    return failed


def _ended(incident_id: str, world: "Ports", sleep: Callable[[float], None]) -> "Incident":
    """The incident, once it is over. Waits as long as that takes: each of its steps has a deadline of its own."""
    while (incident := world.incidents.incident(incident_id)).is_under_way:
        sleep(LOOK_EVERY_SECONDS)
    return incident
