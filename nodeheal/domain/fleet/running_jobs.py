"""How the running jobs of a pool train, counted: what a pool's metrics are made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunningJobs:
    """Jobs all of whose ranks run. `shown`: those that show steps; `with_findings`: those of which something is wrong
    now, also where it is that they have shown no step yet.
    """

    shown: int = 0
    with_findings: int = 0

    def __add__(self, other: "RunningJobs") -> "RunningJobs":
        return RunningJobs(self.shown + other.shown, self.with_findings + other.with_findings)
