"""Draws the faults of a run from a stream of their own, so that reactions to one fault do not change the next.

So a fleet meets the same faults at the same times on the same nodes under each latency, each cloud and each keeper. A
fault has no effect on a node that is down or broken already, and how often that is so depends on all three.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from nodeheal.simulation.faults import SimulatedFault, draw_fault, draw_kind, kinds
from nodeheal.simulation.setting import DAY, Setting

SHY = 0.03  # share of faults that pass diagnostics
WIDE = 1 / 8  # share, among those that may hit half a rack


@dataclass(frozen=True)
class ScheduledFault:
    """One future fault. `place`, 0 to 1: its position among the nodes in their order."""

    at: float
    place: float
    fault: SimulatedFault
    is_wide: bool


def fault_schedule(setting: Setting) -> Iterator[ScheduledFault]:
    """Return the faults of the whole run, in order. They depend on seed, pool, size and rate only."""
    stream = Random(f"{setting.seed}/{setting.pool}/strikes")
    rate = setting.faults_a_node_day * setting.nodes / DAY
    at = 0.0
    while rate and (at := at + stream.expovariate(rate)) < setting.days * DAY:
        place, kind = stream.random(), draw_kind(stream, kinds())
        yield ScheduledFault(at, place, draw_fault(stream, kind, SHY), stream.random() < WIDE)
