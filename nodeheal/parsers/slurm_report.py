"""Packs and unpacks a Slurm controller's report: nodes out of service, and the jobs that Slurm has.

The agent there packs it; operators' commands unpack it. Pure, standard library.
"""

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import count
from typing import Any

from nodeheal.parsers.slurm import SlurmJob, SlurmNode

# SSM returns 24,000 characters of a command's output; the remainder has room for the rest of the answer.
CHARACTERS = 23_000
# Nodes come first and leave at least half of it to jobs.
_OF_NODES = CHARACTERS // 2
_MOST_JOBS = 256  # a job takes a hundred characters
_REASON_CHARACTERS = 200  # of why a node is out of service


@dataclass(frozen=True)
class NodeOut:
    """A node that Slurm gives no work. `taken_by`: nodeheal, Slurm or a person; empty: it has no reason. `since`: epoch
    seconds.
    """

    name: str
    addresses: tuple[str, ...]
    state: str
    reason: str
    reason_by: str
    since: int | None
    taken_by: str


@dataclass(frozen=True)
class SlurmReport:
    """What fits into one answer, and the number of other nodes and jobs."""

    nodes: tuple[NodeOut, ...]
    jobs: tuple[SlurmJob, ...]
    more_nodes: int = 0
    more_jobs: int = 0


def pack(nodes: Sequence[tuple[SlurmNode, Sequence[str]]], jobs: Iterable[SlurmJob]) -> dict[str, Any]:
    """Pack the answer for JSON. `nodes`: those out of service, each with its addresses. `jobs` may be any number: those
    without room are counted, and not kept.
    """
    all_nodes = [astuple(_out(node, addresses)) for node, addresses in nodes]
    first, number = first_jobs(jobs)
    some_nodes, left = fitting(all_nodes, _OF_NODES)
    some_jobs, _ = fitting([astuple(job) for job in first], CHARACTERS - _OF_NODES + left)
    return {
        "nodes": {"fields": _names(NodeOut), "rows": some_nodes, "more": len(all_nodes) - len(some_nodes)},
        "jobs": {"fields": _names(SlurmJob), "rows": some_jobs, "more": number - len(some_jobs)},
    }


def first_jobs(jobs: Iterable[SlurmJob]) -> tuple[list[SlurmJob], int]:
    """Return the first jobs, as many as one answer can hold, and the number of all.

    Jobs with nodes come first, then failed ones, then waiting ones, then the others; in each group the newest first.
    """
    number = count()
    first = heapq.nsmallest(_MOST_JOBS, (job for job, _ in zip(jobs, number, strict=False)), key=_first)
    return first, next(number)


def unpack(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Unpack the answer into a SlurmReport. Raises KeyError, TypeError, ValueError."""
    nodes, jobs = answer["nodes"], answer["jobs"]
    return {
        "nodes": _rows(nodes),
        "jobs": _rows(jobs),
        "more_nodes": nodes["more"],
        "more_jobs": jobs["more"],
    }


def _out(node: SlurmNode, addresses: Sequence[str]) -> NodeOut:
    reason = node.reason[:_REASON_CHARACTERS]
    return NodeOut(node.name, tuple(addresses), node.state, reason, node.reason_by, node.since, node.taken_by)


def _first(job: SlurmJob) -> tuple[int, int]:
    groups = (not (job.is_over or job.waits), job.is_over and job.state != "COMPLETED", job.waits, True)
    return groups.index(True), -(job.ended_at or job.started_at or job.submitted_at or 0)


def fitting(rows: Sequence[Any], characters: int) -> tuple[list[Any], int]:
    """Return as many leading items as fit, and the remaining room."""
    fitting: list[Any] = []
    for row in rows:
        needed = len(json.dumps(row)) + len(", ")
        if needed > characters:
            break
        characters -= needed
        fitting.append(row)
    return fitting, characters


def _names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]


def _rows(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(table["fields"], row, strict=True)) for row in table["rows"]]
