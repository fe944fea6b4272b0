"""`nodeheal pause`, `nodeheal unpause` and `nodeheal breaker`: what a human holds in hand."""

from typing import Annotated

import typer

from nodeheal.cli import connect
from nodeheal.cli.connect import AsJson, Table, Why, clearly
from nodeheal.cli.say import refuse, say, say_json
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Awaited
from nodeheal.domain.counted import counted
from nodeheal.domain.knobs import LONGEST
from nodeheal.services.brakes import pause_node, pause_pool, reset_breaker

breaker = typer.Typer(no_args_is_help=True, help="A pool's breaker: open while so much fails that nothing is touched.")

Target = Annotated[str, typer.Argument(help="a node (i-… or mi-…), or a pool")]
PoolName = Annotated[str, typer.Argument(help="the pool")]
NODE_PREFIXES = ("i-", "mi-")


def pause(
    target: Target,
    length: Annotated[str, typer.Option("--for", help="90s, 30m, 2h or 1d")],
    why: Why,
    table: Table = names.TABLE,
) -> None:
    """Touch nothing on a node, or in a pool, for a while. What happens there is still told."""
    seconds = connect.seconds_of(length)
    if not 0 < seconds <= LONGEST:
        refuse(f"--for {length}: more than 0 and at most {LONGEST // 86_400}d")
    _set(target, seconds, connect.on_record(why), table)


def unpause(target: Target, table: Table = names.TABLE) -> None:
    """End a pause before its time."""
    _set(target, 0, "", table)


def _set(target: str, seconds: int, why: str, table: str) -> None:
    with clearly():
        world = connect.ports(table)
        is_node = target.startswith(NODE_PREFIXES)
        if is_node:
            until = pause_node(target, seconds, why, world).paused_until
        else:
            until = pause_pool(connect.known_pool(target, world), seconds, why, world).paused_until
    what = f"{'node' if is_node else 'pool'} {target}"
    say(f"{what} is paused until {until:%Y-%m-%d %H:%M:%S} UTC" if until else f"{what} is not paused")


@breaker.command()
def show(pool: PoolName, table: Table = names.TABLE, as_json: AsJson = False) -> None:
    """Whether it is open, since when and why, and who waits for its reset."""
    with clearly():
        world = connect.ports(table)
        found = world.pools.get(connect.known_pool(pool, world))
        line = world.waits.in_line(names.pool_line(Awaited.BREAKER, pool))
    waiting = [wait.incident_id for wait in line]
    if as_json:
        opened = found.breaker_opened_at.isoformat() if found.breaker_opened_at else None
        say_json({"pool": pool, "opened_at": opened, "why": found.breaker_why, "waiting": waiting})
    elif found.breaker_opened_at is None:
        say(f"the breaker of pool {pool} is closed")
    else:
        say(f"the breaker of pool {pool} is open since {found.breaker_opened_at:%Y-%m-%d %H:%M:%S} UTC")
        say(f"  {found.breaker_why}\n  {counted(len(waiting), 'incident waits', 'incidents wait')} for its reset")


@breaker.command()
def reset(pool: PoolName, why: Why, table: Table = names.TABLE) -> None:
    """Close it. What waits is decided anew: what is stale by now is dropped, the rest goes on within the budget."""
    with clearly():
        world = connect.ports(table)
        woken = reset_breaker(connect.known_pool(pool, world), connect.on_record(why), world)
    say(f"the breaker of pool {pool} is closed; {counted(woken, 'incident decides', 'incidents decide')} anew")
