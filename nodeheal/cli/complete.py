"""What a shell completes: pools, nodes, jobs and incidents. Where AWS cannot be asked, it completes nothing."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import lookup
from nodeheal.cli import connect
from nodeheal.contract import names
from nodeheal.domain.recovery import incident as incident_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nodeheal.ports import Ports


def pools(incomplete: str) -> list[str]:
    """The pools."""
    return _begun(incomplete, lambda world: world.fleet_index.pools())


def nodes(incomplete: str) -> list[str]:
    """The nodes of every pool."""
    return _begun(incomplete, lambda world: lookup.node_ids(world, incomplete))


def targets(incomplete: str) -> list[str]:
    """Pools and nodes."""
    return [*pools(incomplete), *nodes(incomplete)]


def jobs(incomplete: str) -> list[str]:
    """The jobs of every pool."""
    return _begun(
        incomplete,
        lambda world: [job.job_id for pool in world.fleet_index.pools() for job in world.job_notes.in_pool(pool)],
    )


def incidents(incomplete: str) -> list[str]:
    """The short ids of incidents, and `latest`."""
    return _begun(
        incomplete,
        lambda world: [
            lookup.LATEST,
            *(incident_record.short_id(incident.incident_id) for incident in lookup.recent_incidents(world)),
        ],
    )


def _begun(incomplete: str, ask: "Callable[[Ports], Iterable[str]]") -> list[str]:
    try:
        words = ask(connect.ports(os.environ.get(names.ENV_TABLE) or names.TABLE))
    except Exception:  # a prompt is no place for an error: the command itself says what is wrong
        return []
    return [name for name in words if name.startswith(incomplete)]


PoolArgument = Annotated[
    str | None,
    typer.Argument(metavar="POOL", show_default=False, help="one pool; without it, every pool", autocompletion=pools),
]
PoolOption = Annotated[
    str | None, typer.Option("--pool", help="one pool; without it, every pool", autocompletion=pools)
]
