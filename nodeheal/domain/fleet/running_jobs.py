"""How the running jobs of a pool train, counted. Pure."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class RunningJobs:
    """Jobs that run on all their nodes. `shown`: those that show steps; `with_findings`: those with an open finding,
    also where it is that they have shown no step yet.

    `accelerators`: that all of them take; `as_usual`: those of jobs without a finding, of which `not_shown` are of jobs
    that show no steps.
    """

    shown: int = 0
    with_findings: int = 0
    accelerators: int = 0
    as_usual: int = 0
    not_shown: int = 0

    def __add__(self, other: "RunningJobs") -> "RunningJobs":
        return RunningJobs(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


def count_job(accelerators: int, *, is_shown: bool, has_findings: bool) -> RunningJobs:
    """Count a running job. `accelerators`: that its ranks take together."""
    return RunningJobs(
        shown=int(is_shown),
        with_findings=int(has_findings),
        accelerators=accelerators,
        as_usual=0 if has_findings else accelerators,
        not_shown=0 if is_shown or has_findings else accelerators,
    )
