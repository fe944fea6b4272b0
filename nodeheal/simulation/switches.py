"""Simulates switches above the racks: a failed one cuts the fabric of all nodes of some racks at once, until somebody
repairs it. The nodes themselves are healthy.
"""

from nodeheal.contract.vocabulary import Provider
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.faults import Kind, SimulatedFault
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import DAY, Setting
from nodeheal.simulation.trace import Trace

BACK_SECONDS = 1_800.0  # until its links are up again (median)
# What the nodes below it report. The fleet's table counts single links; switch failures are not drawn from it.
LINKS = {
    Provider.hybrid: Kind("switch", 0, "ib", "LINK_DOWN", "reports", 1, 0),
    Provider.ec2: Kind("switch", 0, "efa", "LINK_DOWN", "reports", 1, 0),
}


class Switches:
    """The switches, each with a number of racks, in their order. Where the setting lets none fail, nothing is drawn."""

    def __init__(self, setting: Setting, agenda: Agenda, chance: Chance, trace: Trace, fleet: Fleet) -> None:
        self._setting, self._agenda, self._trace, self._fleet = setting, agenda, trace, fleet
        self._stream = chance.of("switches")
        self.failed = 0

    def begin(self) -> None:
        """Start the failures."""
        if self._setting.switches_fail_a_day:
            self._agenda.after(self._stream.expovariate(self._setting.switches_fail_a_day / DAY), self._next)

    def _next(self) -> None:
        if not self._fleet.is_over:
            self.fail(self._stream.choice(list(self._fleet.nodes.values())).rack)
            self.begin()

    def fail(self, rack: str) -> None:
        """Fail the switch of this rack now."""
        racks = sorted({node.rack for node in self._fleet.nodes.values()} | {rack})
        first = racks.index(rack) // self._setting.racks_a_switch * self._setting.racks_a_switch
        below = set(racks[first : first + self._setting.racks_a_switch])
        self.failed += 1
        self._trace.tell("switch fails", self._setting.pool, f"{len(below)} racks: {', '.join(sorted(below))}")
        fault = SimulatedFault(LINKS[self._setting.provider], "itself")
        struck = [node for node in self._fleet.nodes.values() if node.rack in below and node.fault is None]
        for node in struck:
            node.fault = fault
            if node.is_up:
                self._fleet.lose_fabric(node, fault.kind)
        self._agenda.after(lognormal(self._stream, BACK_SECONDS, 0.7), lambda: self._is_back(struck, fault))

    def _is_back(self, struck: list[GroundTruth], fault: SimulatedFault) -> None:
        self._trace.tell("switch is back", self._setting.pool)
        for node in struck:
            if node.fault is fault:
                node.fault = None
