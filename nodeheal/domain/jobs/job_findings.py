"""What is wrong with how a run trains, judged by what the agents of its nodes have read.

A step count says that a job is slow, and never who slows it: in a collective all ranks wait for the last. Only a rank's
own work in a step tells one from the others, so that alone makes a suspect; and only a fault that its node's own checks
measure makes the node one that slows the job.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import assert_never

from nodeheal.contract.training import ENDED, NodeTraining
from nodeheal.contract.vocabulary import JobFindingKind
from nodeheal.domain.humanize import lasting
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.training_progress import median_of
from nodeheal.domain.policy.policy_models import SlowJobs

FEWEST_NODES = 3  # of two, nobody can say which one is wrong
MOST_SUSPECTS = 4  # a quarter of the nodes at most: where more lie apart, the ranks do different work
SHARE_OF_SUSPECTS = 0.25
SMALLEST_SPREAD = 0.01  # of the median: clocks and medians of few steps are no more exact
TO_SIGMA = 1.4826  # from a median absolute deviation to a standard deviation
RISEN_LOSS = 0.5  # of its own median: noise of a loss near zero is no divergence


@dataclass(frozen=True)
class Suspect:
    """A rank whose own work in a step takes longer than that of its peers, or does not end. `local_rank`: on its node;
    `seconds`: how long it takes, or has taken; `cause`: the fault that slows its node meanwhile, by the node's checks.
    """

    node_id: str
    local_rank: int
    seconds: float
    cause: str | None = None


@dataclass(frozen=True)
class JobFinding:
    """One thing that is wrong with a run. `value` and `usual`: what was measured, in seconds, or of a loss. `step`: the
    last one that the run has done.
    """

    job_id: str
    run: int
    kind: JobFindingKind
    value: float | None = None
    usual: float | None = None
    step: int | None = None
    suspects: tuple[Suspect, ...] = ()

    @property
    def text(self) -> str:
        """What is wrong, for people."""
        value, usual = self.value or 0.0, self.usual or 0.0
        match self.kind:
            case JobFindingKind.HUNG:
                ranks = ", ".join(f"local rank {each.local_rank} on {each.node_id}" for each in self.suspects)
                who = f"; the others wait for {ranks}" if ranks else ""
                return f"no rank has taken a step for {lasting(value)}; a step usually takes {lasting(usual)}{who}"
            case JobFindingKind.NO_FIRST_STEP:
                return f"its ranks have been running for {lasting(value)}, and none has taken a step"
            case JobFindingKind.NO_CHECKPOINT:
                return f"its last checkpoint is {lasting(value)} old; its file says one every {lasting(usual)}"
            case JobFindingKind.SLOWER:
                return f"a step takes {value:.3g} s; in this run it usually took {usual:.3g} s"
            case JobFindingKind.SLOW_RANK:
                ranks = ", ".join(
                    f"local rank {each.local_rank} on {each.node_id} ({each.seconds:.3g} s{_measured(each)})"
                    for each in self.suspects
                )
                return f"own work of a step takes longer on {ranks} than on other nodes ({usual:.3g} s)"
            case JobFindingKind.LOSS_NOT_FINITE:
                return "its loss is not a number any more" + (f"; it was {usual:.4g}" if self.usual is not None else "")
            case JobFindingKind.LOSS_ROSE:
                return f"its loss is {value:.4g}; in this run it was {usual:.4g} before"
        assert_never(self.kind)

    @property
    def proven(self) -> Suspect | None:
        """The suspect whose node measures what slows it, and what a restart may mend; None: nobody's does."""
        return next((suspect for suspect in self.suspects if suspect.cause in _MENDED_BY_RESTART), None)


def _measured(suspect: Suspect) -> str:
    return f", and its node measures {suspect.cause}" if suspect.cause is not None else ""


# Of SLOWING_FAULTS: heat and want of power stay, so that a human has them.
_MENDED_BY_RESTART = frozenset({"nvml/CLOCKS_LOW", "nvml/PCIE_GENERATION_REDUCED", "nvml/PCIE_WIDTH_REDUCED"})
# Medians of few steps may lie apart once: these are told when the next heartbeats say the same.
_NOISY = frozenset({JobFindingKind.SLOWER, JobFindingKind.SLOW_RANK, JobFindingKind.LOSS_ROSE})
_CONFIRMED_AFTER = timedelta(seconds=90)


@dataclass(frozen=True)
class NotedFinding:
    """What is written down of a finding. `since`: when it was made first; `over_at`: when it was not made any more;
    `announced_at`: when the owner was told, once a run.
    """

    finding: JobFinding
    since: datetime
    announced_at: datetime | None = None
    over_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether it still holds."""
        return self.over_at is None

    def is_due(self, now: datetime) -> bool:
        """Whether the owner is to be told now."""
        if self.announced_at is not None or not self.is_open:
            return False
        return self.finding.kind not in _NOISY or now >= self.since + _CONFIRMED_AFTER


def noted(findings: Sequence[JobFinding], known: Sequence[NotedFinding], now: datetime) -> list[NotedFinding]:
    """Return what is to be written down: what begins, what begins again or is proven now, and what is over."""
    by_kind, made = {each.finding.kind: each for each in known}, {finding.kind for finding in findings}
    ends = [replace(each, over_at=now) for each in known if each.is_open and each.finding.kind not in made]
    begins = (_begun(finding, by_kind.get(finding.kind), now) for finding in findings)
    return [*filter(None, begins), *ends]


def _begun(finding: JobFinding, before: NotedFinding | None, now: datetime) -> NotedFinding | None:
    """Return what is written down of a finding; None: it is written down. What is told without a proof is told again
    with it.
    """
    if before is None:
        return NotedFinding(finding, now)
    since = before.since if before.is_open else now
    if finding.proven is not None and before.finding.proven is None:
        return NotedFinding(finding, since)
    return None if before.is_open else NotedFinding(finding, since, before.announced_at)


def due(findings: Sequence[JobFinding], known: Sequence[NotedFinding], now: datetime) -> list[NotedFinding]:
    """Return the findings of which the owner is to be told now, each as it was made just now."""
    by_kind = {each.finding.kind: each for each in known}
    current = [replace(by_kind[finding.kind], finding=finding) for finding in findings]
    return [each for each in current if each.is_due(now)]


def job_findings(
    job: Job,
    run: Run,
    trainings: Mapping[str, NodeTraining],
    seconds_up: float,
    limits: SlowJobs,
    *,
    all_said: bool = True,
) -> list[JobFinding]:
    """Return what is wrong. `trainings`: what the run's nodes say of it, by node; `seconds_up`: since all ranks run;
    `all_said`: whether no other node has yet to say something of it.
    """
    judge = _Judge(job, run, trainings, seconds_up, limits)
    standstill = judge.standstill() if all_said else ()
    return [*standstill, *judge.pace(), *judge.loss(), *judge.checkpoint()]


def first_distrusted(job: Job, run: Run, reports: Sequence[NodeTraining]) -> int | None:
    """Return the step from which on no checkpoint of a run is to be trusted whose loss is not a number; None: that is
    not known.

    The update of a step shows in the loss of the next: of the last good step not even the checkpoint is proven. Where
    no step was good, or going back has not helped before, one before that from which the run began is wanted.
    """
    good = [report.good_step for report in reports if report.good_step is not None]
    went_back_before = job.diverged is not None and job.diverged.run < run.number
    if run.resumed_step is not None and (went_back_before or not good):
        good.append(run.resumed_step)
    return min(good, default=None)


@dataclass(frozen=True)
class _Judge:
    job: Job
    run: Run
    trainings: Mapping[str, NodeTraining]
    seconds_up: float
    limits: SlowJobs

    @property
    def _reports(self) -> Sequence[NodeTraining]:
        return list(self.trainings.values())

    def _finding(
        self, kind: JobFindingKind, value: float | None, usual: float | None, suspects: tuple[Suspect, ...] = ()
    ) -> JobFinding:
        step = max((report.step for report in self._reports), default=None)
        return JobFinding(self.job.job_id, self.run.number, kind, value, usual, step, suspects)

    def standstill(self) -> Iterator[JobFinding]:
        """No rank takes a step: a run hangs when the one that has moved last stands still."""
        if not self._reports:
            longest = self.limits.first_step_seconds
            has_shown_steps = self.job.steps is not None or self.run.resumed_step is not None
            if longest and has_shown_steps and self.seconds_up > longest:
                yield self._finding(JobFindingKind.NO_FIRST_STEP, self.seconds_up, None)
            return
        running = [report for report in self._reports if report.pause != ENDED]
        if running and all(report.is_stalled(self.limits.hang_seconds, self.limits.hang_steps) for report in running):
            idle = min(report.idle_seconds or 0.0 for report in running)
            usual = median_of(report.usual_step_seconds or report.step_seconds for report in running)
            yield self._finding(JobFindingKind.HUNG, idle, usual, tuple(self._awaited()))

    def _awaited(self) -> Iterator[Suspect]:
        """Yield the ranks for which the others wait, one a node, where ranks show that they wait, and most do."""
        working = [
            Suspect(node_id, report.working_rank, report.idle_seconds or 0.0)
            for node_id, report in sorted(self.trainings.items())
            if report.working_rank is not None
        ]
        shows = [report.waiting_ranks for report in self._reports]
        if None not in shows and any(shows) and len(working) <= max(1, min(MOST_SUSPECTS, len(shows) // 2)):
            yield from working

    def pace(self) -> Iterator[JobFinding]:
        """Its steps take longer than usual; and the ranks whose own work takes longer than that of the others."""
        suspects = tuple(self._suspects())
        if suspects:
            slow = {suspect.node_id for suspect in suspects}
            others = [report for node_id, report in self.trainings.items() if node_id not in slow]
            peers = median_of(report.compute_seconds for report in others or self._reports)
            yield self._finding(JobFindingKind.SLOW_RANK, max(each.seconds for each in suspects), peers, suspects)
        now = median_of(report.step_seconds for report in self._reports)
        usual = median_of(report.usual_step_seconds for report in self._reports)
        spread = median_of(report.step_spread for report in self._reports)
        if now is not None and usual is not None and spread is not None:
            rise = now - usual
            if rise > usual * self.limits.slower_percent / 100 and rise > self.limits.deviations * spread:
                yield self._finding(JobFindingKind.SLOWER, now, usual)

    def _suspects(self) -> Iterator[Suspect]:
        """Yield the slowest rank of each node that lies apart, where few do: else the ranks do different work. Of fewer
        nodes than can be compared, the one that is slower than the other and also measures what slows it.
        """
        typical = [report.compute_seconds for report in self._reports if report.compute_seconds is not None]
        if len(typical) < FEWEST_NODES:
            slowest = [each for report in self._reports if (each := report.slowest_compute_seconds) is not None]
            apart = self._apart(min(slowest, default=0.0) * (1 + self.limits.slower_percent / 100))
            yield from (suspect for suspect in apart if suspect.cause is not None)
            return
        middle = median(typical)
        sigma = TO_SIGMA * median(abs(seconds - middle) for seconds in typical)
        limit = middle + max(
            self.limits.deviations * max(sigma, SMALLEST_SPREAD * middle), middle * self.limits.slower_percent / 100
        )
        apart = self._apart(limit)
        if len(apart) <= max(1, min(MOST_SUSPECTS, int(SHARE_OF_SUSPECTS * len(typical)))):
            yield from apart

    def _apart(self, limit: float) -> Sequence[Suspect]:
        return [
            Suspect(node_id, report.slowest_rank or 0, report.slowest_compute_seconds, report.slowed_by)
            for node_id, report in sorted(self.trainings.items())
            if report.slowest_compute_seconds is not None and report.slowest_compute_seconds > limit
        ]

    def loss(self) -> Iterator[JobFinding]:
        """It is not a number any more, or has left its median."""
        losses = [report for report in self._reports if report.loss is not None]
        for report in losses:
            if not math.isfinite(report.loss or 0.0):
                yield self._finding(JobFindingKind.LOSS_NOT_FINITE, None, report.usual_loss)
                return
        for report in losses:
            if report.loss is None or report.usual_loss is None or report.loss_spread is None:
                continue
            rise = report.loss - report.usual_loss
            if rise > RISEN_LOSS * abs(report.usual_loss) and rise > self.limits.deviations * report.loss_spread:
                yield self._finding(JobFindingKind.LOSS_ROSE, report.loss, report.usual_loss)
                return

    def checkpoint(self) -> Iterator[JobFinding]:
        """It trains, and has written no checkpoint for several of its intervals. Only of jobs that show checkpoints."""
        every = self.job.checkpoints.every_seconds if self.job.checkpoints else None
        saved = [report.saved_seconds for report in self._reports if report.saved_seconds is not None]
        if every and saved and min(saved) > self.limits.missed_checkpoints * every:
            yield self._finding(JobFindingKind.NO_CHECKPOINT, min(saved), float(every))
