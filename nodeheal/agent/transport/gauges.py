"""Defines samples for metrics, and parses the names in `NodeCheckResult.gauges`."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

# CloudWatch's limits; no measured value comes near.
LARGEST = 2.0**360


@dataclass(frozen=True)
class Sample:
    """One value for Prometheus, under the metric's name without `nodeheal_`."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gauge:
    """One measured value. `which` names the thing among several: `1` for the second GPU; empty where there is
    only one.
    """

    name: str
    which: str
    value: float

    @property
    def kind(self) -> str:
        """The kind of thing that `which` distinguishes: `gpu`."""
        return self.name.partition("_")[0]

    @property
    def job(self) -> str:
        """The job of a training value, where `which` is a job, or a job and its run: `llama/3`."""
        return self.which.partition("/")[0]


def taken_apart(gauges: Mapping[str, float]) -> Iterator[Gauge]:
    """Parse all values that are numbers."""
    for key, value in gauges.items():
        name, _, which = key.partition(":")
        if math.isfinite(value) and abs(value) <= LARGEST:
            yield Gauge(name, which, float(value))


def training_job(gauges: Mapping[str, float]) -> str:
    """Return the job that trains on this node, where exactly one reports its steps: then all GPUs belong to it."""
    jobs = {gauge.job for gauge in taken_apart(gauges) if gauge.kind == "training"}
    return jobs.pop() if len(jobs) == 1 else ""
