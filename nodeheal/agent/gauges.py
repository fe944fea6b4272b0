"""What metrics are made of: samples of the agent itself, and the names of `Look.gauges` taken apart."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

# What CloudWatch takes at most; nothing that is measured comes near.
LARGEST = 2.0**360


@dataclass(frozen=True)
class Sample:
    """One value for Prometheus, by the metric's name without `nodeheal_`."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gauge:
    """One measure. `which` of several it is of: the second GPU's is `1`; empty where there is only one."""

    name: str
    which: str
    value: float

    @property
    def kind(self) -> str:
        """What it is of, and so what `which` tells apart: `gpu`."""
        return self.name.partition("_")[0]

    @property
    def job(self) -> str:
        """Of a measure of training, where `which` is a job, or a job and its run: `llama/3`."""
        return self.which.partition("/")[0]


def taken_apart(gauges: Mapping[str, float]) -> Iterator[Gauge]:
    """All that are numbers."""
    for key, value in gauges.items():
        name, _, which = key.partition(":")
        if math.isfinite(value) and abs(value) <= LARGEST:
            yield Gauge(name, which, float(value))


def training_job(gauges: Mapping[str, float]) -> str:
    """The job that trains on this node, where exactly one shows its steps: whose GPU it is then needs no asking."""
    jobs = {gauge.job for gauge in taken_apart(gauges) if gauge.kind == "training"}
    return jobs.pop() if len(jobs) == 1 else ""
