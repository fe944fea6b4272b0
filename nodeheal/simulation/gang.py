"""A training job as it really goes, whatever its records say."""

from dataclasses import dataclass, field

from nodeheal.simulation.agenda import Due
from nodeheal.simulation.true_node import TrueNode


@dataclass(slots=True)
class Rank:
    """One task, as it really is."""

    job_id: str
    run: int
    node: TrueNode
    boot: int
    task_id: str
    state: str = "PENDING"


@dataclass
class Gang:
    """One job's training, whatever its records say."""

    job_id: str
    total_seconds: float
    began_at: float
    done_seconds: float = 0.0  # that a checkpoint holds
    running_since: float | None = None
    run: int = 0
    ranks: dict[str, Rank] = field(default_factory=dict)  # of the newest run
    end: Due | None = None
    first_ran_at: float | None = None
    trained_seconds: float = 0.0

    def progress(self, now: float, every: float) -> float:
        """What a checkpoint holds now, where one is written every so many seconds."""
        if self.running_since is None:
            return self.done_seconds
        trained = now - self.running_since
        if self.done_seconds + trained >= self.total_seconds:
            return self.total_seconds
        return self.done_seconds + trained // every * every

    def account(self, now: float, every: float) -> dict[str, float]:
        """Where its time went, in seconds by cause."""
        wall = now - self.began_at
        waited = (self.first_ran_at if self.first_ran_at is not None else now) - self.began_at
        trained = self.trained_seconds + (now - self.running_since if self.running_since is not None else 0.0)
        done = min(self.progress(now, every), trained)
        lost = wall - waited - trained
        return {"productive": done, "recomputed": trained - done, "waiting": waited, "down": lost}
