"""The agent's loop over fakes."""

import json
from collections.abc import Iterator

from nodeheal.agent.checks.check import NodeCheck, NodeCheckResult, Problem, State, always
from nodeheal.agent.checks.check_ipc import ProcessAnswer, answer_of, dumped
from nodeheal.agent.checks.check_scheduler import FIRST_LOOKS_WITHIN_SECONDS
from nodeheal.agent.runtime.config import load
from nodeheal.agent.runtime.loop import Agent
from nodeheal.agent.transport.sender import Sender
from nodeheal.agent.transport.spool import Spool
from nodeheal.contract.names import NODE_HARDWARE_REPORTED
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from tests.support.agent_fakes import (
    FakeTime,
    NodeFolder,
)

CHECK = NodeCheck("gpus", "a test", 60.0, 5.0, always, lambda *_: NodeCheckResult())


REMAP = [Problem(Finding(Family.host, "disk_full", component, "no room"), "no room") for component in ("a", "b")]


class FakeLooks:
    """Answers every question with what the test has put there."""

    def __init__(self) -> None:
        self.terms = (CHECK.terms,)
        self.descriptor = -1
        self.is_closed = False
        self.look = NodeCheckResult()
        self.due_in_seconds = 1000.0
        self._asked = 0
        self.asked_ever = 0

    def ask(self, _name: str, _state: State) -> None:
        self._asked += 1
        self.asked_ever += 1

    def answers(self) -> Iterator[ProcessAnswer]:
        asked, self._asked = self._asked, 0
        yield from [answer_of(dumped(ProcessAnswer("gpus", self.look)))] * asked

    def due_in(self) -> float:
        return self.due_in_seconds

    def close(self) -> None:
        self.is_closed = True


class Run:
    """An agent whose time the test moves."""

    def __init__(self, node: NodeFolder) -> None:
        self.looks, self.time, self.spool = FakeLooks(), FakeTime(), Spool(node.state_dir, 1 << 20)
        clock = self.time.clock()
        sender = Sender(self.spool, None, clock)  # type: ignore[arg-type]  # never started
        self.agent = Agent(load(node.config_file), self.spool, sender, clock, self.looks)  # type: ignore[arg-type]

    def look(self, look: NodeCheckResult, times: int = 1) -> None:
        self.looks.look = look
        for _ in range(times):
            self.time.seconds += CHECK.interval_seconds + FIRST_LOOKS_WITHIN_SECONDS
            self.agent.step()

    def told(self) -> list[str]:
        return [entry.detail for entry in self.spool.oldest(100) if entry.detail_type == "Node Health Reported"]

    def hardware(self) -> list[dict[str, object]]:
        """What was told of the first accelerator each time."""
        reports = [entry.detail for entry in self.spool.oldest(100) if entry.detail_type == NODE_HARDWARE_REPORTED]
        first = [json.loads(report)["accelerators"][0] for report in reports]
        return [{name: part[name] for name in ("rows_remapped", "temperature_celsius")} for part in first]

    def told_of(self, component: str) -> int:
        return sum(f'"component":"{component}"' in detail for detail in self.told())


EVERY = 60.0
