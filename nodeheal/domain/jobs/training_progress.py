"""How far a run has come and how fast, by its nodes' heartbeats. For people only: nothing is decided by it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from statistics import median

from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.jobs.job import Job, Run


@dataclass(frozen=True)
class TrainingProgress:
    """The last step of a run. `steps`: how many the job takes in all; `rate`: steps a second since the run began.
    `step_seconds`: of the last ten minutes; `usual_step_seconds`: of the run before; medians of its nodes.
    """

    step: int
    at: datetime
    steps: int | None = None
    rate: float | None = None
    step_seconds: float | None = None
    usual_step_seconds: float | None = None
    loss: float | None = None  # None also where it is not a number: a finding says that

    @property
    def share(self) -> float | None:
        """How much of the job is done, 0 to 1; None where its file does not say how many steps it takes."""
        return min(1.0, self.step / self.steps) if self.steps else None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at this rate; None where that is not known."""
        if not self.steps or not self.rate:
            return None
        return max(0.0, (self.steps - self.step) / self.rate)


def training_progress(job: Job, run: Run | None, heartbeats: Mapping[str, Heartbeat]) -> TrainingProgress | None:
    """The farthest step that a node of the run has shown. None: it does not run, or shows none."""
    if run is None or job.is_over or run.has_ended:
        return None
    key = f"{job.job_id}/{run.number}"
    nodes = [heartbeats[task.node_id] for task in run.tasks if task.node_id in heartbeats]
    shown = [(beat.trainings[key].step, beat.at) for beat in nodes if key in beat.trainings]
    if not shown:
        return None
    step, at = max(shown)
    begun = (at - run.running_since).total_seconds() if run.running_since else 0.0
    taken = step - (run.resumed_step or 0)
    trainings = [beat.trainings[key] for beat in nodes if key in beat.trainings]
    loss = median_of(training.loss for training in trainings)
    return TrainingProgress(
        step,
        at,
        job.steps,
        taken / begun if begun > 0 and taken > 0 else None,
        median_of(training.step_seconds for training in trainings),
        median_of(training.usual_step_seconds for training in trainings),
        loss if loss is not None and isfinite(loss) else None,
    )


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of those that are known; None: none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
