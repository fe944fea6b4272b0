"""Jobs, as `nodeheal jobs list` and `submit` tell of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeheal.api.views import JobListRow
from nodeheal.cli.cluster_views import KubernetesJobRow, SlurmJobRow, UnknownJobsRow
from nodeheal.cli.kubernetes import JobsByCluster, jobs_of, kubernetes_job
from nodeheal.cli.say import age, say
from nodeheal.cli.slurm import Reports, clusters_in, reports_of, slurm_job
from nodeheal.cli.table import say_table
from nodeheal.contract.vocabulary import JobState, SchedulerKind
from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.jobs.job import ENDED
from nodeheal.ports import Ports

INCOMPLETE = 6  # exit code: what a cluster of Slurm or Kubernetes has is not known


@dataclass(frozen=True)
class Listed:
    """A job in a list, whoever runs it."""

    is_over: bool
    row: JobListRow | SlurmJobRow | KubernetesJobRow


def listed(rows: Iterable[JobListRow], reports: Reports, on_kubernetes: JobsByCluster) -> list[Listed]:
    """nodeheal's own jobs and those that Slurm and Kubernetes run; the jobs that are over come last."""
    ours = [Listed(row.state in ENDED, row) for row in rows]
    of_slurm = [
        Listed(job.is_over, slurm_job(job, cluster)) for cluster, report in reports.known.items() for job in report.jobs
    ]
    of_kubernetes = [
        Listed(job.is_over, kubernetes_job(job, cluster))
        for cluster, jobs in on_kubernetes.known.items()
        for job in jobs
    ]
    return sorted([*ours, *of_slurm, *of_kubernetes], key=lambda job: job.is_over)


def unknown_rows(unknown: Mapping[SchedulerKind, Mapping[str, str]]) -> list[UnknownJobsRow]:
    """A row for each cluster whose jobs are not known. `unknown`: why, by scheduler and cluster."""
    return [
        UnknownJobsRow(scheduler=kind, cluster=cluster, summary=f"not known: {why}")
        for kind, clusters in unknown.items()
        for cluster, why in clusters.items()
    ]


def scheduler_jobs(pools: Iterable[str], world: Ports) -> list[SlurmJobRow | KubernetesJobRow | UnknownJobsRow]:
    """The jobs that Slurm and Kubernetes run on the clusters of these pools, and the clusters that do not answer."""
    pools = list(pools)
    reports = reports_of(clusters_in(pools, world))
    on_kubernetes = jobs_of(clusters_in(pools, world, SchedulerKind.KUBERNETES))
    unknown = {SchedulerKind.SLURM: reports.unknown, SchedulerKind.KUBERNETES: on_kubernetes.unknown}
    rows = (job.row for job in listed((), reports, on_kubernetes))
    return [*(row for row in rows if not isinstance(row, JobListRow)), *unknown_rows(unknown)]


def say_jobs(
    jobs: Sequence[Listed], unknown: Mapping[SchedulerKind, Collection[str]], now: datetime, *, is_wide: bool = False
) -> None:
    """A list, for people. `unknown`: by scheduler, the clusters whose jobs are not known."""
    names = (
        f"{scheduler.title()} cluster{'s' if len(clusters) > 1 else ''} {', '.join(sorted(clusters))}"
        for scheduler, clusters in unknown.items()
        if clusters
    )
    but = "".join(f"; those of {name} are not known" for name in names)
    if not jobs:
        say(f"no job of nodeheal's{but}" if but else "no job")
        return
    head = ("JOB", "SCHEDULER", "STATE", "POOL", "NODES", "RUN", "AGE", "DONE", "HOW IT STANDS")
    say_table(head, [_cells(job.row, now) for job in jobs], is_wide=is_wide)
    say(f"{counted(len(jobs), 'job')}, {sum(not job.is_over for job in jobs)} active{but}")


def say_top(rows: Sequence[JobListRow], now: datetime, *, is_wide: bool = False) -> None:
    """How far the active jobs have come, for people."""
    if not rows:
        say("no active job")
        return
    head = ("JOB", "STATE", "POOL", "NODES", "RUN", "STEP", "DONE", "STEPS/S", "PACE", "LEFT", "SEEN")
    say_table(head, [_top(row, now) for row in rows], is_wide=is_wide)
    if any(row.state is JobState.RUNNING and row.step is None for row in rows):
        say("STEP -: its program has written no step to $NODEHEAL_PROGRESS_FILE")


def _top(row: JobListRow, now: datetime) -> tuple[str, ...]:
    cells = (row.job, row.state.value, row.pool, str(row.nodes), str(row.run or "-"))
    if row.step is None:
        return (*cells, "-", "-", "-", "-", "-", "-")
    pace = f"{row.steps_per_second:.2g}" if row.steps_per_second else "-"
    left = lasting(row.seconds_left) if row.seconds_left is not None else "-"
    done = f"{row.share:.0%}" if row.share is not None else "-"
    return (*cells, str(row.step), done, pace, pace_text(row), left, age(row.step_at, now))


def pace_text(row: JobListRow) -> str:
    """`87%` of its usual pace in this run; `-`: not known."""
    return f"{row.usual_step_seconds / row.step_seconds:.0%}" if row.usual_step_seconds and row.step_seconds else "-"


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
    takes = f"; a step takes {row.step_seconds:.3g} s" if row.step_seconds else ""
    usual = f", usually {row.usual_step_seconds:.3g} s" if takes and row.usual_step_seconds else ""
    loss = f"; loss {row.loss:.4g}" if row.loss is not None else ""
    return f"step {row.step}{done}{pace}{left}{takes}{usual}{loss}"


def _cells(row: JobListRow | SlurmJobRow | KubernetesJobRow, now: datetime) -> tuple[str, ...]:
    if isinstance(row, JobListRow):
        place, done = row.pool, done_text(row)
    else:
        place, done = f"{row.cluster}/{row.partition}" if isinstance(row, SlurmJobRow) else row.cluster, "-"
    return (
        row.job,
        row.scheduler.value,
        row.state,
        place,
        str(row.nodes),
        str(row.run or "-"),
        age(row.submitted_at, now),
        done,
        row.summary or "-",
    )
