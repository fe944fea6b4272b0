"""Lists the jobs that stand before a job in its pool's line for nodes, for people who ask how long it waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import Job
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import jobs_before, jobs_in_line

NAMED = 5


@dataclass(frozen=True)
class Standing:
    """A job that waits for so many nodes. `since`: when it was submitted, by which it stands where it does."""

    job_id: str
    since: datetime | None
    priority: int
    nodes: int


def stands_before(job: Job, ports: Ports) -> list[Standing]:
    """Returns the jobs that get nodes before this one, in order. Empty if it has its nodes or is over."""
    if job.state is not JobState.SUBMITTED:
        return []
    has_chosen = job.chosen_at is not None and job.submitted_at is not None and job.chosen_at >= job.submitted_at
    if has_chosen and job.job_id not in jobs_in_line(job.pool, ports):
        return []  # they are being checked
    known = (ports.jobs.get(name) for name in jobs_before(job, ports))
    return [
        Standing(other.job_id, other.submitted_at, other.priority, other.nodes) for other in known if other is not None
    ]


def line_in_words(ahead: Sequence[Standing]) -> str:
    """`2 jobs stand in line before it: eval (wants 4 nodes, since 2026-03-01 03:00 UTC), …`, where any does."""
    each = [
        f"{standing.job_id} (wants {counted(standing.nodes, 'node')}{_priority(standing)}, since {_at(standing)})"
        for standing in ahead
    ]
    more = f" and {len(each) - NAMED} more" if len(each) > NAMED else ""
    return f"{counted(len(each), 'job stands', 'jobs stand')} in line before it: {', '.join(each[:NAMED])}{more}"


def _priority(standing: Standing) -> str:
    return f", priority {standing.priority}" if standing.priority else ""


def _at(standing: Standing) -> str:
    return f"{standing.since:%Y-%m-%d %H:%M:%S} UTC" if standing.since else "an unknown time"
