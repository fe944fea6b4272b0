"""Defines what fails, how often, and what fixes it: the root causes that Meta counted in 54 days of training Llama 3
405B.

"The Llama 3 Herd of Models" (arXiv 2407.21783), table 5: 419 unexpected interruptions on 16,384 H100. The weights are
its counts; silent data corruption (6) is left out, since the node does not report it. What fixes a fault, and its code,
are guesses: no table of that is public.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random


@dataclass(frozen=True)
class Kind:
    """One row. `effect`: reports (the node reports, and its rank dies), warns (it reports, the job goes on), exits (a
    rank ends, and the node is healthy), rack (neighbours fail too), vanishes (the node goes silent).
    """

    name: str
    weight: float
    family: str
    code: str
    effect: str
    by_itself: float  # share that disappears by itself
    by_reboot: float  # share that a reboot fixes; the rest needs other hardware
    source: str = "kernel_log"  # the check that reports it


@cache
def kinds() -> tuple[Kind, ...]:
    """Return the table."""
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
class SimulatedFault:
    """A present fault of a node. `cure`: itself, reboot or hardware."""

    kind: Kind
    cure: str
    is_shy: bool = False  # passes diagnostics nevertheless, and comes again


def draw_kind(stream: Random, among: Sequence[Kind]) -> Kind:
    """Draw a kind, by weight."""
    return stream.choices(among, [kind.weight for kind in among])[0]


def draw_fault(stream: Random, kind: Kind, shy: float) -> SimulatedFault:
    """Draw a fault of this kind, with its cure."""
    drawn = stream.random()
    cure = "itself" if drawn < kind.by_itself else "reboot" if drawn < kind.by_itself + kind.by_reboot else "hardware"
    return SimulatedFault(kind, cure, cure != "itself" and stream.random() < shy)
