"""Jobs, as `nodeheal jobs list` and `submit` tell of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from nodeheal.cli.say import say, say_table
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import Job
from nodeheal.services.jobs.job_line import Standing
from nodeheal.services.jobs.prepare_job import Plan


class Where(TypedDict):
    """Where a job would run now; no nodes, and why, where it would wait."""

    pool: str
    cluster: str
    nodes: list[str]
    racks: list[str]
    why: str


def placement_of(plan: Plan) -> Where:
    """The placement that the plan would get now."""
    nodes = plan.placement.nodes
    return {
        "pool": plan.job.pool,
        "cluster": plan.job.cluster,
        "nodes": [node.node_id for node in nodes],
        "racks": sorted({node.rack for node in nodes if node.rack}),
        "why": plan.placement.why,
    }


def row_of(job: Job) -> dict[str, object]:
    """One line of a list, for programs."""
    return {
        "job": job.job_id,
        "state": job.state.value,
        "pool": job.pool,
        "nodes": job.nodes,
        "priority": job.priority,
        "run": job.current_run,
        "submission": job.submission,
        "submitted_at": iso(job.submitted_at),
        "owner": str(job.owner) if job.owner else None,
        "summary": job.summary,
    }


def standing_json(ahead: Sequence[Standing]) -> list[dict[str, object]]:
    """Who gets nodes before a job, for programs."""
    return [{"job": one.job_id, "since": iso(one.since), "priority": one.priority, "nodes": one.nodes} for one in ahead]


def say_jobs(jobs: Sequence[Job]) -> None:
    """A list, for people."""
    if not jobs:
        say("no job")
        return
    head = ("JOB", "STATE", "POOL", "NODES", "RUN", "SUBMITTED (UTC)", "HOW IT STANDS")
    say_table(head, [(*_cells(job), job.summary or "-") for job in jobs])
    say(f"{counted(len(jobs), 'job')}, {sum(not job.is_over for job in jobs)} of them alive")


def _cells(job: Job) -> tuple[str, ...]:
    at = f"{job.submitted_at:%Y-%m-%d %H:%M:%S}" if job.submitted_at else "-"
    return job.job_id, job.state.value, job.pool, str(job.nodes), str(job.current_run or "-"), at


def iso(at: datetime | None) -> str | None:
    """A time, for programs."""
    return at.isoformat(timespec="seconds") if at else None
