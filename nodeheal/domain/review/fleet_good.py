"""One number for "is my fleet good", with its parts: accelerators in service, times those whose jobs train as usual."""

from dataclasses import dataclass, field

from nodeheal.domain.fleet.pool import AcceleratorCount, RunningJobs


@dataclass(frozen=True)
class FleetGood:
    """How good nodes and their running jobs are. None: nobody has counted them lately, or of a large pool not yet.

    Shares are in percent, rounded down to a tenth, so that 100 says that nothing is wrong.
    """

    nodes: AcceleratorCount | None = field(default_factory=AcceleratorCount)
    jobs: RunningJobs | None = field(default_factory=RunningJobs)

    def __add__(self, other: "FleetGood") -> "FleetGood":
        return FleetGood(
            self.nodes + other.nodes if self.nodes and other.nodes else None,
            self.jobs + other.jobs if self.jobs and other.jobs else None,
        )

    @property
    def in_service(self) -> float | None:
        """The share of all accelerators that are in service; None: there are none, or it is not known."""
        return _percent(self.nodes.in_service, self.nodes.accelerators) if self.nodes else None

    @property
    def as_usual(self) -> float | None:
        """The share of the running jobs' accelerators whose job trains as usual; None: no job runs, or not known."""
        return _percent(self.jobs.as_usual, self.jobs.accelerators) if self.jobs else None

    @property
    def percent(self) -> float | None:
        """Both shares, multiplied; where no job runs, that of the nodes alone. None: a part is not known."""
        if not self.nodes or not self.jobs:
            return None
        good, of = (self.jobs.as_usual, self.jobs.accelerators) if self.jobs.accelerators else (1, 1)
        return _percent(self.nodes.in_service * good, self.nodes.accelerators * of)


def _percent(part: int, whole: int) -> float | None:
    return 1_000 * part // whole / 10 if whole else None
