"""`python -m bench.slow_jobs`: how often jobs that train well are accused, and how soon slow ones are found.

Simulated, with what the agent computes (`TrainingHistory`) and what the control plane judges by (`job_findings`,
`noted`). A job has 16 nodes, one heartbeat a minute, and steps of 5 s with this spread:

- each step of the job and each rank's own work in it is drawn from a lognormal distribution, the work of a rank
  independently of the others';
- one step in 200 takes twice to four times as long: input, garbage collection, a checkpoint that nobody declared.

Deterministic: a second run gives the same.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from nodeheal.agent.runtime.training_files import LINES, StepRecord
from nodeheal.agent.runtime.trainings import TrainingHistory
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import JobFindingKind, SchedulerKind
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.job_findings import NotedFinding, due, job_findings, noted
from nodeheal.domain.policy.policy_models import SlowJobs

WRITTEN = Path("build/slow-jobs.json")
SPREADS = (0.01, 0.03, 0.05, 0.10)  # standard deviation of a step, of its median
NODES = 16
STEP_SECONDS = 5.0
WORK = 0.7  # of a step
RARE = 1 / 200  # steps that take long
EVERY_SECONDS = 60.0
STEPS_A_LOOK = int(EVERY_SECONDS / STEP_SECONDS)
HOURS = 10.0  # of a job
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = SlowJobs()
JOB = Job("job", "pool", Cluster(SchedulerKind.ECS, "cluster"), "trainer:1", "trainer", NODES)
RUN = Run("job", 1, BEGUN, "", ())


@dataclass(frozen=True)
class Slowdown:
    """From this minute on every step takes so many times as long, or the own work of the first node's rank does."""

    minute: int
    times: float
    of_one_rank: bool = False


def announcements(
    seed: int, hours: float, spread: float, slowdown: Slowdown | None = None
) -> Iterator[tuple[int, NotedFinding]]:
    """Yield the minute and the finding, whenever an owner is told."""
    draw, history, known = np.random.default_rng(seed), TrainingHistory(), dict[JobFindingKind, NotedFinding]()
    work = np.empty((NODES, 0))
    for minute in range(int(hours * 60)):
        is_slow = slowdown is not None and minute >= slowdown.minute
        times = slowdown.times if slowdown is not None and is_slow else 1.0
        steps = _drawn(draw, STEP_SECONDS, spread, (STEPS_A_LOOK,))
        new = _drawn(draw, STEP_SECONDS * WORK, spread, (NODES, STEPS_A_LOOK))
        if slowdown is not None and is_slow and slowdown.of_one_rank:
            new[0] *= times
        else:
            steps, new = steps * times, new * times
        work = np.concatenate([work, new], axis=1)[:, -LINES:]
        first = minute * STEPS_A_LOOK
        records = [StepRecord(first + n, step_seconds=float(seconds)) for n, seconds in enumerate(steps)]
        history.add({0: records}, minute * EVERY_SECONDS)
        now = BEGUN + timedelta(minutes=minute)
        findings = job_findings(JOB, RUN, _trainings(history, np.median(work, axis=1), first), minute * 60.0, LIMITS)
        for change in noted(findings, list(known.values()), now):
            known[change.finding.kind] = change
        for each in due(findings, list(known.values()), now):
            known[each.finding.kind] = replace(each, announced_at=now)
            yield minute, each


def _drawn(draw: "np.random.Generator", middle: float, spread: float, shape: tuple[int, ...]) -> "np.ndarray":
    values = middle * np.exp(draw.normal(0.0, spread, shape))
    return values * np.where(draw.random(shape) < RARE, draw.uniform(2.0, 4.0, shape), 1.0)


def _trainings(history: TrainingHistory, medians: "np.ndarray", step: int) -> dict[str, NodeTraining]:
    usual, spread = history.usual_step_seconds()
    return {
        f"node-{number}": NodeTraining(
            "job/1",
            step,
            idle_seconds=1.0,
            step_seconds=history.step_seconds,
            usual_step_seconds=usual,
            step_spread=spread,
            compute_seconds=float(median),
            slowest_compute_seconds=float(median),
            slowest_rank=0,
        )
        for number, median in enumerate(medians)
    }


def measure(job_hours: float, slow_jobs: int) -> dict[str, dict[str, float]]:
    """Return, for each spread: job-hours, false alarms by kind, and of slow jobs the share found and minutes to it."""
    results: dict[str, dict[str, float]] = {}
    for spread in SPREADS:
        jobs = int(job_hours / HOURS)
        alarms = Counter(each.finding.kind for seed in range(jobs) for _, each in announcements(seed, HOURS, spread))
        row = {"job_hours": jobs * HOURS, **{f"alarms_{kind.lower()}": float(n) for kind, n in alarms.items()}}
        for name, slowdown, kind in (
            ("15_percent", Slowdown(120, 1.15), JobFindingKind.SLOWER),
            ("half", Slowdown(120, 1.5, of_one_rank=True), JobFindingKind.SLOW_RANK),
        ):
            delays = [_delay(seed, spread, slowdown, kind) for seed in range(10_000, 10_000 + slow_jobs)]
            known = sorted(delay for delay in delays if delay is not None)
            row[f"found_{name}"] = len(known) / slow_jobs
            if known:
                row[f"minutes_{name}"], row[f"most_minutes_{name}"] = known[len(known) // 2], known[-1]
        results[f"{spread:g}"] = row
        sys.stdout.write(f"spread {spread:.0%}: {json.dumps(row)}\n")
        sys.stdout.flush()
    return results


def _delay(seed: int, spread: float, slowdown: Slowdown, kind: JobFindingKind) -> float | None:
    hours = slowdown.minute / 60 + 1.0
    minutes = (minute for minute, each in announcements(seed, hours, spread, slowdown) if each.finding.kind is kind)
    return next((float(minute - slowdown.minute) for minute in minutes if minute >= slowdown.minute), None)


def main(arguments: list[str] | None = None) -> int:
    """Simulate, print a line for each spread, and write build/slow-jobs.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.slow_jobs", description=__doc__)
    parser.add_argument("--job-hours", type=float, default=10_000.0, help="of well jobs, for each spread")
    parser.add_argument("--slow-jobs", type=int, default=100, help="for each spread and slowdown")
    given = parser.parse_args(arguments)
    if given.job_hours < HOURS or given.slow_jobs < 1:
        parser.error(f"--job-hours is {HOURS:g} or more, --slow-jobs 1 or more")
    results = measure(given.job_hours, given.slow_jobs)
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
