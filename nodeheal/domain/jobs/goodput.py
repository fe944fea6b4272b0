"""How much of a job's time was training, and what became of the rest.

ETTR is the effective training time ratio of Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning
Research Clusters" (arXiv 2410.21680): productive time over all time since the job was submitted, waiting included.
Goodput is the same over the time since it has had its nodes.

nodeheal sees when runs begin and end, and the step that each has resumed from; it does not see each step. So what a
run has computed for nothing is known exactly where the next one resumed from the same step, or the program has shown
its last step; from the pace of the fastest run at least, where steps are known; as half an interval between
checkpoints, where only that is known.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.humanize import lasting
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.lost_work import steps_lost
from nodeheal.domain.recovery.incident import Incident

LEAST_SHOWN = 1  # seconds lost by one cause; less is not worth a word
_CAUSES = {
    "waiting_seconds": "waiting for nodes",
    "preflight_seconds": "in checks before the start",
    "restart_seconds": "starting its ranks",
    "recomputed_seconds": "computing steps again",
    "down_seconds": "down",
}


@dataclass(frozen=True)
class Losses:
    """Seconds without training, by cause."""

    waiting_seconds: float = 0.0  # for nodes, before the first run
    preflight_seconds: float = 0.0  # from the choice of the nodes to the first launch
    restart_seconds: float = 0.0  # from a launch until all ranks run, the first one's included
    recomputed_seconds: float = 0.0  # computed once, and lost: it had to be computed again
    down_seconds: float = 0.0  # from the first rank's end to the next launch

    @property
    def total_seconds(self) -> float:
        """The sum of all."""
        return sum(
            (
                self.waiting_seconds,
                self.preflight_seconds,
                self.restart_seconds,
                self.recomputed_seconds,
                self.down_seconds,
            )
        )


@dataclass(frozen=True)
class RunTimes:
    """One run, and the time after it until the next one."""

    number: int
    productive_seconds: float
    restart_seconds: float
    recomputed_seconds: float
    down_seconds: float
    has_failed: bool
    incident_id: str = ""  # that has restarted the job after it
    fault: str = ""  # of that incident, as its family and code: xid 79

    @property
    def running_seconds(self) -> float:
        """How long all of its ranks ran."""
        return self.productive_seconds + self.recomputed_seconds


@dataclass(frozen=True)
class Goodput:
    """All of a job's time since its submission, by use."""

    wall_seconds: float
    productive_seconds: float
    losses: Losses
    runs: tuple[RunTimes, ...]

    @property
    def ettr(self) -> float | None:
        """Productive time over all time, 0 to 1. None: no time has passed."""
        return _share(self.productive_seconds, self.wall_seconds)

    @property
    def goodput(self) -> float | None:
        """Productive time over the time with nodes, 0 to 1. None: it has had no nodes."""
        return _share(self.productive_seconds, self.wall_seconds - self.losses.waiting_seconds)

    @property
    def failures(self) -> int:
        """How often it was restarted, or has to be."""
        return sum(run.has_failed for run in self.runs)

    @property
    def running_seconds(self) -> float:
        """How long all ranks ran, in all runs."""
        return sum(run.running_seconds for run in self.runs)

    @property
    def mtbf_seconds(self) -> float | None:
        """Running time for each failure. None: there was no failure."""
        return self.running_seconds / self.failures if self.failures else None

    @property
    def words(self) -> str:
        """The ratio and the losses for people, the largest loss first. Empty: no time has passed."""
        if self.ettr is None:
            return ""
        trained = f"it trained {lasting(self.productive_seconds)} of the {lasting(self.wall_seconds)} since submission"
        losses = sorted(((seconds, _CAUSES[name]) for name, seconds in asdict(self.losses).items()), reverse=True)
        lost = ", ".join(f"{lasting(seconds)} {cause}" for seconds, cause in losses if seconds >= LEAST_SHOWN)
        return f"effective training time (ETTR) {self.ettr:.0%}: {trained}{f'; lost: {lost}' if lost else ''}"


def goodput_of(job: Job, runs: Sequence[Run], incidents: Sequence[Incident], now: datetime) -> Goodput:
    """Returns the account of the newest submission, until it ended, or until now."""
    mine = sorted((run for run in runs if _is_of(run, job)), key=lambda run: run.number)
    begin = job.submitted_at or (mine[0].started_at if mine else now)
    end = max(begin, _end(job, mine, incidents, now))
    before = _seconds(begin, mine[0].started_at if mine else end)
    chosen = job.chosen_at if job.chosen_at is not None and mine else None
    preflight = min(before, _seconds(chosen, mine[0].started_at)) if chosen is not None else 0.0
    known = {incident.incident_id: incident for incident in incidents}
    pace = _seconds_a_step(mine, end)
    times = tuple(_times(job, run, following, pace, known, end) for run, following in _with_next(mine))
    losses = Losses(
        waiting_seconds=before - preflight,
        preflight_seconds=preflight,
        restart_seconds=sum(run.restart_seconds for run in times),
        recomputed_seconds=sum(run.recomputed_seconds for run in times),
        down_seconds=sum(run.down_seconds for run in times),
    )
    productive = sum(run.productive_seconds for run in times)
    return Goodput(_seconds(begin, end), productive, losses, times)


def _times(
    job: Job, run: Run, following: Run | None, pace: float | None, known: dict[str, Incident], end: datetime
) -> RunTimes:
    over = following.started_at if following is not None else end
    stopped = min(run.ended_at, over) if run.ended_at is not None else over
    began = min(run.running_since, stopped) if run.running_since is not None else stopped
    running = _seconds(began, stopped)
    lost = min(running, _lost(job, run, following, running, pace)) if following is not None else 0.0
    incident_id = following.incident_id if following is not None else ""
    incident = known.get(incident_id)
    return RunTimes(
        number=run.number,
        productive_seconds=running - lost,
        restart_seconds=_seconds(run.started_at, began),
        recomputed_seconds=lost,
        down_seconds=_seconds(stopped, over),
        has_failed=_has_failed(job, run, following),
        incident_id=incident_id,
        fault=f"{incident.root.family} {incident.root.code}" if incident is not None else "",
    )


def _lost(job: Job, run: Run, following: Run, running: float, pace: float | None) -> float:
    """Returns the seconds that the next run had to compute again; see above."""
    steps, shown = _steps(run, following), steps_lost(run, following)
    if steps is not None and shown is not None and steps + shown > 0:
        return running * min(1.0, shown / (steps + shown))
    if steps is not None:
        return running if steps <= 0 else max(0.0, running - steps * (pace or 0.0))
    every = job.checkpoints.every_seconds if job.checkpoints is not None else None
    return every / 2 if every is not None else 0.0


def _steps(run: Run, following: Run) -> int | None:
    """Returns the steps of this run that counted. None: they are not known."""
    if following.resumed_step is None or (run.resumed_step is None and run.resumed_from):
        return None
    return following.resumed_step - (run.resumed_step or 0)


def _seconds_a_step(runs: Sequence[Run], end: datetime) -> float | None:
    """Returns the pace of the fastest run. None: no run's steps are known."""
    paces = []
    for run, following in _with_next(runs):
        steps = _steps(run, following) if following is not None else None
        if steps is not None and steps > 0 and run.running_since is not None:
            paces.append(_seconds(run.running_since, run.ended_at or end) / steps)
    return min(paces, default=None)


def _has_failed(job: Job, run: Run, following: Run | None) -> bool:
    """Tells whether the run had to be restarted. One that a person stopped, or that ended well, has not failed."""
    if following is not None:
        return bool(following.incident_id)
    return run.ended_at is not None and not job.is_over


def _is_of(run: Run, job: Job) -> bool:
    return job.submitted_at is None or run.started_at >= job.submitted_at


def _end(job: Job, runs: Sequence[Run], incidents: Sequence[Incident], now: datetime) -> datetime:
    """Returns when the account ends: with the last run of a job that is over.

    That of a job that has failed ends with the incident that has left it down: until then it waited to run again.
    """
    last = runs[-1].ended_at if runs else None
    if not job.is_over or last is None:
        return now
    until = [last]
    if job.state is JobState.FAILED:
        until += [each.closed_at for each in incidents if each.closed_at and each.incident_id == job.left_down_by]
    return min(max(until), now)


def _with_next(runs: Sequence[Run]) -> list[tuple[Run, Run | None]]:
    return list(zip(runs, [*runs[1:], None], strict=False))


def _share(productive: float, of: float) -> float | None:
    """Returns the share, 0 to 1.

    None: no time has passed. Sums that were rounded apart may differ in the last digit.
    """
    return min(1.0, productive / of) if of > 0 else None


def _seconds(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin).total_seconds())
