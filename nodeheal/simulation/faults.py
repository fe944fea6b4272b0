"""What fails, how often, and what mends it: the root causes that Meta counted in 54 days of training Llama 3 405B.

"The Llama 3 Herd of Models" (arXiv 2407.21783), table 5: 419 unexpected interruptions on 16,384 H100. The weights are
its counts; silent data corruption (6) is left out, since nothing on the node tells of it. What mends a fault, and which
code stands for it, is our guess: no table of that is public.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random


@dataclass(frozen=True)
class Kind:
    """One row. `effect`: reports (the node tells, and its rank dies), warns (it tells, the job goes on), exits (a rank
    ends, and the node is well), rack (neighbours too), vanishes (nothing is heard any more)."""

    name: str
    weight: float
    family: str
    code: str
    effect: str
    by_itself: float  # share that is gone without anybody's doing
    by_reboot: float  # share that a reboot mends; the rest needs other hardware
    source: str = "kernel_log"  # who reports it


@cache
def kinds() -> tuple[Kind, ...]:
    """The table."""
    with files(__package__).joinpath("faults.csv").open(encoding="utf-8") as file:
        return tuple(
            Kind(
                row["name"],
                float(row["weight"]),
                row["family"],
                row["code"],
                row["effect"],
                float(row["by_itself"]),
                float(row["by_reboot"]),
                row["source"],
            )
            for row in csv.DictReader(file)
        )


@dataclass
class Fault:
    """One that a node has now. `cure`: itself, reboot or hardware."""

    kind: Kind
    cure: str
    is_shy: bool = False  # passes diagnostics all the same, and comes again


def draw_kind(stream: Random, among: Sequence[Kind]) -> Kind:
    """One of them, by weight."""
    return stream.choices(among, [kind.weight for kind in among])[0]


def draw_fault(stream: Random, kind: Kind, shy: float) -> Fault:
    """A fault of this kind, and what would mend it."""
    drawn = stream.random()
    cure = "itself" if drawn < kind.by_itself else "reboot" if drawn < kind.by_itself + kind.by_reboot else "hardware"
    return Fault(kind, cure, cure != "itself" and stream.random() < shy)
