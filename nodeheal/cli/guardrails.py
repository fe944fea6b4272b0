"""`nodeheal pause`, `nodeheal unpause` and `nodeheal breaker`: what a human holds in hand."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import own_acts, queries
from nodeheal.cli import complete, connect
from nodeheal.cli.connect import AsJson, Table, Why, clearly
from nodeheal.cli.say import refuse, say, say_json
from nodeheal.contract import acts, names
from nodeheal.domain.humanize import counted
from nodeheal.domain.policy import policy_models
from nodeheal.domain.recovery import incident as incident_record

if TYPE_CHECKING:
    from nodeheal.ports import Ports

breaker = typer.Typer(
    no_args_is_help=True,
    help="A pool's breaker: it opens when many nodes fail at once, and nothing more is isolated, rebooted or replaced "
    "until you reset it.",
)

Target = Annotated[str, typer.Argument(help="a node (i-… or mi-…), or a pool", autocompletion=complete.targets)]
PoolName = Annotated[str, typer.Argument(metavar="POOL", help="the pool", autocompletion=complete.pools)]
NODE_PREFIXES = ("i-", "mi-")
WAITING_NAMED = 8
_UNPAUSED = "unpaused"  # the reason where none is given


def pause(
    target: Target,
    length: Annotated[str, typer.Option("--for", help="90s, 30m, 2h or 1d")],
    why: Why,
    table: Table = names.TABLE,
) -> None:
    """Do nothing to a node, or in a pool, for a time. Faults are still reported."""
    seconds = connect.seconds_of(length, policy_models.LONGEST)
    if not seconds:
        refuse(f"{length!r} is not a pause; give at least 1s, or end one with `nodeheal unpause {target}`")
    reason = connect.on_record(why)
    with clearly():
        until = _pause(target, seconds, reason, connect.ports(table))
    say(f"{_called(target)} is paused until {until:%Y-%m-%d %H:%M:%S} UTC")


def unpause(
    target: Target,
    why: Annotated[str | None, typer.Option(help="goes on record; your name does anyway")] = None,
    table: Table = names.TABLE,
) -> None:
    """End a pause before its time."""
    reason = connect.on_record(_UNPAUSED if why is None else why)
    with clearly():
        world = connect.ports(table)
        until = _paused_until(target, world)
        if until is not None:
            _pause(target, 0, reason, world)
    ending = f"'s pause is over now, before {until:%Y-%m-%d %H:%M:%S} UTC" if until else " was not paused"
    say(f"{_called(target)}{ending}{'' if until else '; nothing was changed'}")


def _is_node(target: str) -> bool:
    return target.startswith(NODE_PREFIXES)


def _called(target: str) -> str:
    return f"{'node' if _is_node(target) else 'pool'} {target}"


def _paused_until(target: str, world: "Ports") -> datetime | None:
    """Until when the node or the pool is paused now. None: it is not."""
    is_node = _is_node(target)
    return own_acts.paused_until(target if is_node else connect.known_pool(target, world), world, is_node=is_node)


def _pause(target: str, seconds: int, why: str, world: "Ports") -> datetime:
    is_node = _is_node(target)
    return own_acts.pause(
        target if is_node else connect.known_pool(target, world), seconds, why, world, is_node=is_node
    )


@breaker.command()
def show(pool: PoolName, table: Table = names.TABLE, as_json: AsJson = False) -> None:
    """Show whether the breaker of a pool is open, since when and why, and which incidents wait for its reset."""
    with clearly():
        world = connect.ports(table)
        view = queries.breaker(connect.known_pool(pool, world), world)
    if as_json:
        say_json(view)
    elif view.opened_at is None:
        say(f"the breaker of pool {pool} is closed")
    else:
        say(f"the breaker of pool {pool} is open since {view.opened_at:%Y-%m-%d %H:%M:%S} UTC")
        say(f"  {view.why}", f"  {counted(len(view.waiting), 'incident waits', 'incidents wait')} for its reset")
        for incident in view.waiting[:WAITING_NAMED]:
            say(f"    {incident_record.short_id(incident)}  {view.nodes[incident]}")
        if view.waiting[WAITING_NAMED:]:
            say(f"    and {len(view.waiting) - WAITING_NAMED} more: nodeheal incidents list {pool} --state waiting")
        say(f"  once you have looked at the pool: nodeheal breaker reset {pool} --why …")


@breaker.command()
def reset(pool: PoolName, why: Why, table: Table = names.TABLE) -> None:
    """Close the breaker of a pool. Incidents that wait are decided again: old ones are dropped, the others go on."""
    reason = connect.reason(why)
    with clearly():
        known = connect.known_pool(pool, connect.acting_ports(table))
        woken = connect.do(acts.ResetBreaker(pool=known, why=reason), acts.BreakerReset).woken
    again = f"{counted(woken, 'incident decides', 'incidents decide')} again"
    say(f"the breaker of pool {pool} is closed; {again}{'; what is stale is dropped' if woken else ''}")
