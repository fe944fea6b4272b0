"""Simulates drills: nodes that report a fault which they do not have."""

from datetime import timedelta

from nodeheal.domain.errors import NotFound
from nodeheal.domain.faults.drill import DcgmDrill
from nodeheal.domain.fleet.node import Node
from nodeheal.parsers.kernel_line import parse_message
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.faults import kinds
from nodeheal.simulation.fleet import Fleet


class SimDrills:
    """Implements Drills, on nodes that are up, on the given boot."""

    def __init__(self, fleet: Fleet, agenda: Agenda) -> None:
        self._fleet, self._agenda = fleet, agenda
        self._sent = 0

    def inject(self, node: Node, line: str, why: str, seconds: int) -> str:
        found = parse_message(line)
        kind = next(kind for kind in kinds() if found is not None and kind.code == found.code)
        self._sent += 1
        command_id, expires_at = f"drill-{self._sent}", self._agenda.clock() + timedelta(seconds=seconds)
        self._fleet.order(
            node.node_id, node.boot_id, command_id, expires_at, lambda it: self._fleet.pretend(it, kind, line)
        )
        return command_id

    def inject_dcgm(self, node: Node, drill: DcgmDrill, why: str, seconds: int) -> str:
        """Refuse: DCGM's host engine is not simulated."""
        raise NotFound(f"{node.node_id} has no DCGM here")
