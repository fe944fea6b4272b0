"""The one loop that writes a change over what others have written meanwhile (compare and swap).

A health event, a boot and the withdrawal of a request have loops of their own: after a lost race they are judged again
as a whole, up to `SAVE_TRIES` times.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.operation import Operation
from nodeheal.ports import Ports

SAVE_TRIES = 5  # two writers of one record are the rule in a storm, five are not


T = TypeVar("T", Node, Job, Run, Pool, Operation)


def save_changed(known: T, read: Callable[[], T], save: Callable[[T], bool], change: Callable[[T], T], name: str) -> T:
    """Write a change over whatever version is stored, and return the record as it is then.

    `change` is called once more for each version that somebody else has written meanwhile. Nothing is written where it
    changes nothing. Raises NotAccepted, with `name` in its words, when every try lost a race.
    """
    for _ in range(SAVE_TRIES):
        changed = change(known)
        if changed == known:
            return known
        if save(changed):
            return replace(changed, version=known.version + 1)
        known = read()
    raise NotAccepted(f"{name} is being written by others; nothing was changed, try again")


def node_of(node_id: str, ports: Ports) -> Node:
    """The node. Raises NotFound with its id."""
    node = ports.nodes.get(node_id)
    if node is None:
        raise NotFound(f"no node {node_id} is known; see `nodeheal nodes list`")
    return node


def change_node(node_id: str, ports: Ports, change: Callable[[Node], Node]) -> Node:
    """Change a node. Raises NotFound and NotAccepted."""

    def read() -> Node:
        return node_of(node_id, ports)

    return save_changed(read(), read, ports.nodes.save, change, node_id)


def change_job(job_id: str, ports: Ports, change: Callable[[Job], Job]) -> Job:
    """Change a job. Raises NotFound and NotAccepted."""

    def read() -> Job:
        job = ports.jobs.get(job_id)
        if job is None:
            raise NotFound(f"no job {job_id} in the table")
        return job

    return save_changed(read(), read, ports.jobs.save, change, job_id)


def change_run(run: Run, ports: Ports, change: Callable[[Run], Run]) -> Run:
    """Change a run of a job. Raises NotAccepted."""

    def read() -> Run:
        return ports.jobs.get_run(run.job_id, run.number) or run

    return save_changed(read(), read, ports.jobs.save_run, change, f"run {run.number} of {run.job_id}")


def change_pool(pool: str, ports: Ports, change: Callable[[Pool], Pool]) -> Pool:
    """Change a pool's record. Raises NotAccepted."""

    def read() -> Pool:
        return ports.pools.get(pool)

    return save_changed(read(), read, ports.pools.save, change, f"pool {pool}")
