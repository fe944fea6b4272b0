"""Sends drills by commands that no function may send."""

import base64
from datetime import timedelta

from nodeheal.domain.faults.drill import DcgmDrill
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.clock import Clock
from nodeheal.ports.commands import Command, NodeCommands


class CommandDrills:
    """Implements Drills. `commands` send a call a single time: a drill must not run twice."""

    def __init__(self, commands: NodeCommands, clock: Clock) -> None:
        self._commands, self._clock = commands, clock

    def inject(self, node: Node, line: str, why: str, seconds: int) -> str:
        encoded = base64.urlsafe_b64encode(line.encode()).decode().rstrip("=")
        return self._send("inject-fault", node, why, seconds, {"Line": encoded})

    def inject_dcgm(self, node: Node, drill: DcgmDrill, why: str, seconds: int) -> str:
        what = {"Gpu": str(drill.gpu), "Field": str(drill.field), "Value": drill.value}
        return self._send("inject-dcgm", node, why, seconds, what)

    def _send(self, document: str, node: Node, why: str, seconds: int, what: dict[str, str]) -> str:
        command = Command(document, what, f"drill, {why}")
        return self._commands.send(node, command, self._clock() + timedelta(seconds=seconds))
