"""Faults, drawn from a stream of their own: what is done about one does not change the next.

So a fleet meets the same faults at the same times on the same nodes under each latency, each cloud and each keeper. A
strike finds nothing to break on a node that is down or broken already, and how often that is so depends on all three.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from nodeheal.simulation.faults import Fault, draw_fault, draw_kind, kinds
from nodeheal.simulation.setting import DAY, Setting

SHY = 0.03  # faults that pass diagnostics
WIDE = 1 / 8  # of those that may strike half a rack


@dataclass(frozen=True)
class ScheduledFault:
    """One fault to come. `place`, 0 to 1: where it strikes among the nodes in their order."""

    at: float
    place: float
    fault: Fault
    is_wide: bool


def fault_schedule(setting: Setting) -> Iterator[ScheduledFault]:
    """Those of the whole run, in their order. The same for the same seed, pool, size and rate."""
    stream = Random(f"{setting.seed}/{setting.pool}/strikes")
    rate = setting.faults_a_node_day * setting.nodes / DAY
    at = 0.0
    while rate and (at := at + stream.expovariate(rate)) < setting.days * DAY:
        place, kind = stream.random(), draw_kind(stream, kinds())
        yield ScheduledFault(at, place, draw_fault(stream, kind, SHY), stream.random() < WIDE)
