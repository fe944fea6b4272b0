"""Names as people type them: `latest`, the end of an incident's id, or the beginning of a node's."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice, takewhile

from nodeheal.api import records
from nodeheal.domain.errors import NotFound
from nodeheal.domain.recovery.incident import Incident, short_id
from nodeheal.ports import Ports

LATEST = "latest"
LOOKED_BACK = timedelta(days=90)
LONGEST = 128
SHORTEST = 4  # characters that stand for an incident
_SHOWN = 5  # of several that fit
_READ_AT_ONCE = 100  # nodes


def incident_named(text: str, world: Ports) -> str:
    """The id of the incident that is meant: `latest`, the whole id, its beginning, or its end as lists show it.

    Raises ValueError where several fit, and NotFound where none does.
    """
    if len(text) > LONGEST:
        raise NotFound(f"no incident {text[:40]}… is known; see `nodeheal incidents list`")
    if text != LATEST:
        try:
            return world.incidents.incident(text).incident_id
        except NotFound:
            if len(text) < SHORTEST:
                raise NotFound(f"no incident {text!r}; give at least {SHORTEST} characters of its id") from None
    recent = recent_incidents(world)
    if text == LATEST:
        if not recent:
            raise NotFound(f"there was no incident in the last {LOOKED_BACK.days} days")
        return recent[0].incident_id
    ids = [incident.incident_id for incident in recent]
    return _the_one(text, [name for name in ids if name.startswith(text) or short_id(name).startswith(text)])


def recent_incidents(world: Ports) -> list[Incident]:
    """The incidents of every pool, the newest first."""
    return records.incidents(world.clock() - LOOKED_BACK, world)


def node_named(text: str, world: Ports) -> str:
    """The id of the node that is meant, by its id or its beginning. For commands that only look.

    Raises ValueError where several fit, and NotFound where none does.
    """
    if text and len(text) <= LONGEST and world.nodes.get(text) is not None:
        return text
    if len(text) < SHORTEST:
        raise NotFound(f"no node {text!r}; give at least {SHORTEST} characters of its id")
    return _the_one(text, list(islice(node_ids(world, text), _SHOWN + 1)), "node")


def node_ids(world: Ports, beginning: str) -> Iterator[str]:
    """The nodes of every pool whose ids go on after this beginning. No more of them are read than are consumed."""
    for pool in world.fleet_index.pools():
        names = (node.node_id for node in world.fleet_index.nodes_after(pool, beginning, _READ_AT_ONCE))
        yield from takewhile(lambda name: name.startswith(beginning), names)


def kind_and_name(text: str, world: Ports) -> tuple[str, str]:
    """What has this name: `job`, `pool`, `node` or `incident`, and its whole name. Raises as node_named."""
    if len(text) <= LONGEST and text in world.fleet_index.pools():
        return "pool", text
    if len(text) <= LONGEST and world.jobs.get(text) is not None:
        return "job", text
    try:
        return "node", node_named(text, world)
    except NotFound:
        try:
            return "incident", incident_named(text, world)
        except NotFound:
            raise NotFound(f"no incident, node, job or pool is called {text[:LONGEST]!r}") from None


def _the_one(text: str, fitting: Sequence[str], what: str = "incident") -> str:
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise NotFound(f"no {what} {text} is known; see `nodeheal {what}s list`")
    raise ValueError(f"{text} may be any of {_some(fitting)}: give more of it")


def _some(fitting: Sequence[str]) -> str:
    return ", ".join(fitting[:_SHOWN]) + (" and more" if len(fitting) > _SHOWN else "")
