"""What the pages' handlers share: what an address asks for, and the nodes of a pool that they offer."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from starlette.requests import Request

from nodeheal.api.client import Client
from nodeheal.domain.fleet.node import Node

NODES_OFFERED = 500  # of a pool, to choose from

SINCE: Mapping[str, timedelta] = {f"{days}d": timedelta(days=days) for days in (1, 7, 30, 90)}


def chosen(word: str, known: Iterable[str], field: str) -> str:
    """Return the word, which must be a known one. Raises ValueError, which names the field."""
    words = list(known)
    if word not in words:
        raise ValueError(f"{field}: {word[:40]!r} is not one of {', '.join(words)}")
    return word


def pools_of(request: Request) -> list[str]:
    """Return the pools that the address names."""
    return [pool for pool in request.query_params.getlist("pool") if pool]


def first_node(client: Client, pool: str) -> Node | None:
    """Return a node of the pool, which is of one cluster as a rule. None: it has none."""
    return next(iter(client.ports.fleet_index.nodes_after(pool, "", 1)), None)
