"""Jobs, as `nodeheal jobs list` and `submit` tell of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeheal.api.views import JobListRow
from nodeheal.cli.say import age, iso, say
from nodeheal.cli.slurm import Reports, time_of
from nodeheal.cli.table import say_table
from nodeheal.contract.vocabulary import JobState, SchedulerKind
from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.jobs.job import ENDED
from nodeheal.parsers.slurm import SlurmJob
from nodeheal.services.jobs.job_line import Standing

INCOMPLETE = 6  # exit code: what Slurm has is not known


def standing_json(ahead: Sequence[Standing]) -> list[dict[str, object]]:
    """Who gets nodes before a job, for programs."""
    from nodeheal.api.job_queries import standing

    return [row.model_dump(mode="json") for row in standing(ahead)]


@dataclass(frozen=True)
class Listed:
    """A job in a list, whoever runs it: for programs, and as the cells of its line."""

    is_over: bool
    is_slurms: bool
    row: Mapping[str, object]
    cells: tuple[str, ...]


def listed(rows: Iterable[JobListRow], reports: Reports, now: datetime) -> list[Listed]:
    """nodeheal's own jobs and those that Slurm runs; the jobs that are over come last."""
    theirs = (_slurms(job, cluster, now) for cluster, report in reports.known.items() for job in report.jobs)
    return sorted([*(_own(row, now) for row in rows), *theirs], key=lambda job: job.is_over)


def say_jobs(jobs: Sequence[Listed], unknown: Collection[str], *, is_wide: bool = False) -> None:
    """A list, for people. `unknown`: the Slurm clusters whose jobs are not known."""
    clusters = f"cluster{'s' if len(unknown) > 1 else ''} {', '.join(sorted(unknown))}"
    but = f"; those of Slurm {clusters} are not known" if unknown else ""
    if not jobs:
        say(f"no job of nodeheal's{but}" if but else "no job")
        return
    head = ("JOB", "SCHEDULER", "STATE", "POOL", "NODES", "RUN", "AGE", "DONE", "HOW IT STANDS")
    say_table(head, [job.cells for job in jobs], is_wide=is_wide)
    say(f"{counted(len(jobs), 'job')}, {sum(not job.is_over for job in jobs)} active{but}")


def say_top(rows: Sequence[JobListRow], now: datetime, *, is_wide: bool = False) -> None:
    """How far the active jobs have come, for people."""
    if not rows:
        say("no active job")
        return
    head = ("JOB", "STATE", "POOL", "NODES", "RUN", "STEP", "DONE", "STEPS/S", "LEFT", "SEEN")
    say_table(head, [_top(row, now) for row in rows], is_wide=is_wide)
    if any(row.state is JobState.RUNNING and row.step is None for row in rows):
        say("STEP -: it has written no step to $NODEHEAL_PROGRESS_FILE, which jobs with hang_seconds have")


def _top(row: JobListRow, now: datetime) -> tuple[str, ...]:
    cells = (row.job, row.state.value, row.pool, str(row.nodes), str(row.run or "-"))
    if row.step is None:
        return (*cells, "-", "-", "-", "-", "-")
    pace = f"{row.steps_per_second:.2g}" if row.steps_per_second else "-"
    left = lasting(row.seconds_left) if row.seconds_left is not None else "-"
    done = f"{row.share:.0%}" if row.share is not None else "-"
    return (*cells, str(row.step), done, pace, left, age(row.step_at, now))


def done_text(row: JobListRow) -> str:
    """`51%`, or the step where the end is not known; `-`: its run shows no step."""
    if row.step is None:
        return "-"
    return f"{row.share:.0%}" if row.share is not None else f"step {row.step}"


def progress_text(row: JobListRow) -> str:
    """`step 5100 of 10000 (51%), 2.1 steps/s, about 40 min left`, as far as each is known."""
    done = f" of {row.steps} ({row.share:.0%})" if row.share is not None else ""
    pace = f", {row.steps_per_second:.2g} steps/s" if row.steps_per_second else ""
    left = f", about {lasting(row.seconds_left)} left" if row.seconds_left is not None else ""
    return f"step {row.step}{done}{pace}{left}"


def unknown_row(cluster: str, why: str) -> dict[str, object]:
    """For programs, in place of the jobs of a Slurm cluster that are not known. A list with it is not empty."""
    known = {"scheduler": SchedulerKind.SLURM.value, "state": "UNKNOWN", "summary": f"not known: {why}"}
    return {**dict.fromkeys(JobListRow.model_fields), **known, "cluster": cluster}


def _own(row: JobListRow, now: datetime) -> Listed:
    cells = (
        row.job,
        row.scheduler.value,
        row.state.value,
        row.pool,
        str(row.nodes),
        str(row.run or "-"),
        age(row.submitted_at, now),
        done_text(row),
        row.summary or "-",
    )
    return Listed(row.state in ENDED, is_slurms=False, row=row.model_dump(mode="json"), cells=cells)


def _slurms(job: SlurmJob, cluster: str, now: datetime) -> Listed:
    """With the fields of nodeheal's own jobs, and Slurm's besides. Slurm's jobs have a partition and no pool."""
    submitted_at = time_of(job.submitted_at)
    run, kind = job.restarts + (not job.waits), SchedulerKind.SLURM.value
    row: dict[str, object] = {
        **dict.fromkeys(JobListRow.model_fields),
        "job": job.job_id,
        "scheduler": kind,
        "state": job.state,
        "nodes": job.nodes,
        "run": run,
        "submitted_at": iso(submitted_at),
        "owner": job.user,
        "summary": _summary(job),
        "name": job.name,
        "cluster": cluster,
        "partition": job.partition,
        "node_list": job.node_list or None,
        "may_requeue": job.may_requeue,
        "restarts": job.restarts,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "started_at": iso(time_of(job.started_at)),
        "ended_at": iso(time_of(job.ended_at)),
        "reason": job.reason or None,
    }
    place = f"{cluster}/{job.partition}"
    cells = (
        job.job_id,
        kind,
        job.state,
        place,
        str(job.nodes),
        str(run or "-"),
        age(submitted_at, now),
        "-",
        _summary(job),
    )
    return Listed(job.is_over, is_slurms=True, row=row, cells=cells)


def _summary(job: SlurmJob) -> str:
    return f"{job.name} of {job.user}: {', '.join(_facts(job))}"


def _facts(job: SlurmJob) -> Iterator[str]:
    """Where it runs, why it waits, how it ended; and what of it an operator should know."""
    if job.node_list and not job.waits:  # one that was requeued has its old nodes on record for a while
        yield f"{'ran' if job.is_over else 'runs'} on {job.node_list}"
    if job.signal:
        yield f"ended by signal {job.signal}"
    elif job.exit_code is not None:
        yield f"exit code {job.exit_code}"
    if job.reason:
        yield f"{'waits' if job.waits else 'Slurm says'}: {job.reason}"
    if job.restarts:
        yield f"restarted {counted(job.restarts, 'time')}"
    if not (job.may_requeue or job.is_over):
        yield "may not be requeued"
