"""What checks measure, as metrics see it: the names of `Look.gauges` taken apart."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# What CloudWatch takes at most; nothing that is measured comes near.
LARGEST = 2.0**360


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


def taken_apart(gauges: Mapping[str, float]) -> Iterator[Gauge]:
    """All that are numbers."""
    for key, value in gauges.items():
        name, _, which = key.partition(":")
        if math.isfinite(value) and abs(value) <= LARGEST:
            yield Gauge(name, which, float(value))
