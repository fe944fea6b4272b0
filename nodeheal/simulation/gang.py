"""Simulates the true state of a training job, whatever its records say."""

import math
from dataclasses import dataclass, field

from nodeheal.simulation.agenda import Due
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import Work


@dataclass(slots=True)
class Rank:
    """The true state of one task."""

    job_id: str
    run: int
    node: GroundTruth
    boot: int
    task_id: str
    state: str = "PENDING"
    began_at: float | None = None  # until it runs
    is_unwanted: bool = False  # the scheduler has been asked to stop it


@dataclass
class GangProgress:
    """The true progress of one job."""

    job_id: str
    total_seconds: float
    began_at: float
    done_seconds: float = 0.0  # contained in a checkpoint
    running_since: float | None = None
    run: int = 0
    ranks: dict[str, Rank] = field(default_factory=dict)  # of the newest run
    end: Due | None = None
    first_ran_at: float | None = None
    trained_seconds: float = 0.0
    written_seconds: float = 0.0  # spent on finished checkpoints

    def left_seconds(self, work: Work) -> float:
        """Return how long all ranks must run until the work is done: the last step needs no checkpoint."""
        left = max(1.0, self.total_seconds - self.done_seconds)
        return left + (math.ceil(left / work.checkpoint_seconds) - 1) * work.write_seconds

    def progress(self, now: float, work: Work) -> float:
        """Return the progress in a checkpoint now, where one is written at this interval of training."""
        if self.running_since is None:
            return self.done_seconds
        if now - self.running_since >= self.left_seconds(work):
            return self.total_seconds
        return self.done_seconds + self._written(now, work) * work.checkpoint_seconds

    def leave(self, now: float, work: Work) -> None:
        """Record that not every rank runs any more: the work since the last checkpoint is lost."""
        if self.running_since is None:
            return
        self.written_seconds += self._written(now, work) * work.write_seconds
        self.done_seconds = self.progress(now, work)
        self.trained_seconds += now - self.running_since
        self.running_since = None
        if self.end is not None:
            self.end.call_off()

    def account(self, now: float, work: Work) -> dict[str, float]:
        """Account its time, in seconds by cause."""
        wall = now - self.began_at
        waited = (self.first_ran_at if self.first_ran_at is not None else now) - self.began_at
        running = now - self.running_since if self.running_since is not None else 0.0
        trained = self.trained_seconds + running
        written = self.written_seconds + (self._written(now, work) * work.write_seconds if running else 0.0)
        done = min(self.progress(now, work), trained)
        lost = trained - done - written
        return {
            "productive": done,
            "recomputed": lost,
            "writing": written,
            "waiting": waited,
            "down": wall - waited - trained,
        }

    def so_far(self, now: float, work: Work) -> dict[str, float]:
        """Return the account so far: work after the last checkpoint does not count as lost yet."""
        account = self.account(now, work)
        running = now - self.running_since if self.running_since is not None else 0.0
        rest = running % (work.checkpoint_seconds + work.write_seconds)
        trained = min(rest, work.checkpoint_seconds, account["recomputed"])
        written = min(rest - trained, account["recomputed"] - trained)
        account["productive"] += trained
        account["writing"] += written
        account["recomputed"] -= trained + written
        return account

    def _written(self, now: float, work: Work) -> float:
        """Return the number of checkpoints that this run has finished."""
        since = now if self.running_since is None else self.running_since
        return (now - since) // (work.checkpoint_seconds + work.write_seconds)
