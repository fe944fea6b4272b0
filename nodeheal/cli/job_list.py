"""Jobs, as `nodeheal jobs list` and `submit` tell of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeheal.cli.say import age, iso, say
from nodeheal.cli.slurm import Reports, time_of
from nodeheal.cli.table import say_table
from nodeheal.contract.vocabulary import JobState, SchedulerKind
from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.training_progress import TrainingProgress
from nodeheal.parsers.slurm import SlurmJob
from nodeheal.services.jobs.job_line import Standing

INCOMPLETE = 6  # exit code: what Slurm has is not known


def row_of(job: Job, progress: TrainingProgress | None = None) -> dict[str, object]:
    """One line of a list, for programs."""
    return {
        "job": job.job_id,
        "scheduler": job.scheduler.value,
        "state": job.state.value,
        "pool": job.pool,
        "nodes": job.nodes,
        "priority": job.priority,
        "run": job.current_run,
        "step": progress.step if progress else None,
        "steps": job.steps,
        "seconds_left": progress.seconds_left if progress else None,
        "submission": job.submission,
        "submitted_at": iso(job.submitted_at),
        "owner": str(job.owner) if job.owner else None,
        "summary": job.summary,
    }


def standing_json(ahead: Sequence[Standing]) -> list[dict[str, object]]:
    """Who gets nodes before a job, for programs."""
    return [{"job": one.job_id, "since": iso(one.since), "priority": one.priority, "nodes": one.nodes} for one in ahead]


@dataclass(frozen=True)
class Listed:
    """A job in a list, whoever runs it: for programs, and as the cells of its line."""

    is_over: bool
    row: Mapping[str, object]
    cells: tuple[str, ...]


def listed(
    jobs: Iterable[Job], reports: Reports, now: datetime, progress: Mapping[str, TrainingProgress]
) -> list[Listed]:
    """nodeheal's own jobs and those that Slurm runs; the jobs that are over come last."""
    theirs = (_slurms(job, cluster, now) for cluster, report in reports.known.items() for job in report.jobs)
    return sorted([*(_own(job, now, progress.get(job.job_id)) for job in jobs), *theirs], key=lambda one: one.is_over)


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


def say_top(
    jobs: Sequence[Job], progress: Mapping[str, TrainingProgress], now: datetime, *, is_wide: bool = False
) -> None:
    """How far the active jobs have come, for people."""
    if not jobs:
        say("no active job")
        return
    head = ("JOB", "STATE", "POOL", "NODES", "RUN", "STEP", "DONE", "STEPS/S", "LEFT", "SEEN")
    say_table(head, [_top(job, progress.get(job.job_id), now) for job in jobs], is_wide=is_wide)
    if any(job.state is JobState.RUNNING and job.job_id not in progress for job in jobs):
        say("STEP -: it has written no step to $NODEHEAL_PROGRESS_FILE, which jobs with hang_seconds have")


def _top(job: Job, progress: TrainingProgress | None, now: datetime) -> tuple[str, ...]:
    cells = (job.job_id, job.state.value, job.pool, str(job.nodes), str(job.current_run or "-"))
    if progress is None:
        return (*cells, "-", "-", "-", "-", "-")
    pace = f"{progress.rate:.2g}" if progress.rate else "-"
    left = lasting(progress.seconds_left) if progress.seconds_left is not None else "-"
    done = f"{progress.share:.0%}" if progress.share is not None else "-"
    return (*cells, str(progress.step), done, pace, left, age(progress.at, now))


def unknown_row(cluster: str, why: str) -> dict[str, object]:
    """For programs, in place of the jobs of a Slurm cluster that are not known. A list with it is not empty."""
    unsaid = ("pool", "nodes", "priority", "run", "step", "steps", "seconds_left", "submission", "submitted_at")
    nothing = dict.fromkeys((*unsaid, "owner"))
    state = {"job": None, "scheduler": SchedulerKind.SLURM.value, "state": "UNKNOWN", "cluster": cluster}
    return {**state, **nothing, "summary": f"not known: {why}"}


def _own(job: Job, now: datetime, progress: TrainingProgress | None) -> Listed:
    done = progress.short if progress else "-"
    at, run = age(job.submitted_at, now), str(job.current_run or "-")
    cells = (
        job.job_id,
        job.scheduler.value,
        job.state.value,
        job.pool,
        str(job.nodes),
        run,
        at,
        done,
        job.summary or "-",
    )
    return Listed(job.is_over, row_of(job, progress), cells)


def _slurms(job: SlurmJob, cluster: str, now: datetime) -> Listed:
    """With the fields of nodeheal's own jobs, and Slurm's besides. Slurm's jobs have a partition and no pool."""
    submitted_at = time_of(job.submitted_at)
    run, kind = job.restarts + (not job.waits), SchedulerKind.SLURM.value
    row: dict[str, object] = {
        "job": job.job_id,
        "scheduler": kind,
        "state": job.state,
        "pool": None,
        "nodes": job.nodes,
        "priority": None,
        "run": run,
        "step": None,
        "steps": None,
        "seconds_left": None,
        "submission": None,
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
    return Listed(job.is_over, row, cells)


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
