"""Queries that list jobs. They read less than those about one job, and import less."""

from collections.abc import Iterator, Sequence
from heapq import merge

from nodeheal.api.pages import WHOLE, ListKind, Page, Rows, bad_cursor, place_of, take
from nodeheal.api.views import JobListRow
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.training_progress import TrainingProgress
from nodeheal.ports import Ports
from nodeheal.services.operators.look_at_job import progress_of

_LIVE, _OVER = "live", "over"


def jobs(pools: Sequence[str], ports: Ports, *, live_only: bool = False, page: Page = WHOLE) -> Rows[JobListRow]:
    """Return the jobs of these pools: those that live first, then by name.

    Raises ValueError for a cursor of another list.
    """
    listed = _records(pools, ports, page, live_only=live_only)
    items, cursor = take(listed, page, ListKind.jobs, lambda pair: (pair[0], pair[1].job_id))
    known = [job for _, job in items]
    progress = progress_of(known, ports)
    return Rows[JobListRow](rows=tuple(job_row(job, progress.get(job.job_id)) for job in known), next=cursor)


def _records(pools: Sequence[str], ports: Ports, page: Page, *, live_only: bool) -> Iterator[tuple[str, Job]]:
    """Yield the jobs behind the page's cursor, each with the part of the list that it is in."""
    first, after = place_of(page, ListKind.jobs, 2) or (_LIVE, "")
    if first not in (_LIVE, _OVER):
        raise bad_cursor(page.after, ListKind.jobs)
    for part in (_LIVE,) if live_only else (_LIVE, _OVER):
        if part >= first:
            name = after if part == first else ""
            size = page.read_at_once
            each = [ports.jobs.after(pool, name, is_over=part == _OVER, page_size=size) for pool in pools]
            yield from ((part, job) for job in merge(*each, key=lambda job: job.job_id))


def job_row(job: Job, progress: TrainingProgress | None = None) -> JobListRow:
    """Return a job's row, with how far it has come."""
    return JobListRow(
        job=job.job_id,
        scheduler=job.cluster.kind,
        state=job.state,
        pool=job.pool,
        nodes=job.nodes,
        priority=job.priority,
        run=job.current_run,
        step=progress.step if progress else None,
        steps=job.steps,
        step_at=progress.at if progress else None,
        steps_per_second=progress.rate if progress else None,
        share=progress.share if progress else None,
        seconds_left=progress.seconds_left if progress else None,
        step_seconds=progress.step_seconds if progress else None,
        usual_step_seconds=progress.usual_step_seconds if progress else None,
        loss=progress.loss if progress else None,
        submission=job.submission,
        submitted_at=job.submitted_at,
        owner=str(job.owner) if job.owner else None,
        summary=job.summary or None,
    )
