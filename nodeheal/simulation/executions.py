"""Simulates Step Functions: executions on the agenda, which wait for the world."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nodeheal.simulation.agenda import Agenda, Due
from nodeheal.simulation.asl import TIMED_OUT, Ask, Delay, Done, Execution, Move, TaskFailure, Watcher
from nodeheal.simulation.chance import Chance
from nodeheal.simulation.definition import STATE_MACHINES, STEMS, Definition, load, read
from nodeheal.simulation.trace import Trace

Json = Any
_ARN = "arn:aws:states:eu-west-1:111122223333:execution:{stem}:{name}"


@cache
def _definition(stem: str, directory: Path) -> Definition:
    return read(stem, load(stem, directory))


@dataclass
class Running:
    """A running execution. `ask`: its present task."""

    stem: str
    name: str
    execution: Execution
    then: Callable[[Done], None]
    ask: Ask | None = None
    timer: Due | None = None
    is_over: bool = False


# The result of a task: an answer, a failure, or None where its token resumes it.
CarryOut = Callable[[Running, Ask], None]


class Executions:
    """All executions of all state machines. A name that was used before starts nothing."""

    def __init__(
        self,
        agenda: Agenda,
        chance: Chance,
        trace: Trace,
        is_strict: bool = True,
        directory: Path = STATE_MACHINES,
    ) -> None:
        self._agenda, self._trace, self._is_strict = agenda, trace, is_strict
        self._jitter = chance.of("jitter").random
        self._lag = chance.of("workflow lag")
        self._machines: dict[str, Definition] = {stem: _definition(stem, directory) for stem in STEMS}
        self._waiting: dict[str, tuple[Running, Ask]] = {}
        self._tokens = 0
        self.names: set[str] = set()
        self.begun: dict[str, tuple[float, Json]] = {}  # by name: when, and its input
        self.live: dict[str, Running] = {}
        self.transitions = 0
        self.carry_out: CarryOut = lambda running, ask: None

    def start(self, stem: str, name: str, given: Json, then: Callable[[Done], None] = lambda _: None) -> Running | None:
        """Start an execution. None: the name was used before."""
        if name in self.names:
            return None
        self.names.add(name)
        self.begun[name] = (self._agenda.now, given)
        arn = _ARN.format(stem=stem, name=name)
        started_at = self._agenda.clock().strftime("%Y-%m-%dT%H:%M:%S.000Z")
        watcher, machine = Watcher(entered=lambda _: self._count()), self._machines[stem]
        execution = Execution(machine, arn, given, started_at, self._token, self._jitter, watcher, self._is_strict)
        running = self.live[name] = Running(stem, name, execution, then)
        self._trace.tell("starts", name, stem)
        self._agenda.after(self._lag.uniform(0.01, 0.05), lambda: self._go_on(running, execution.begin()))
        return running

    def resume(self, token: str, result: Json) -> bool:
        """Resume a waiting task with its result. False: no task waits with this token any more."""
        running, ask = self._waiting.pop(token, (None, None))
        if running is None or ask is None or running.ask is not ask:
            return False
        self._agenda.after(self._lag.uniform(0.01, 0.05), lambda: self.answer(running, ask, result))
        return True

    def answer(self, running: Running, ask: Ask, result: Json) -> None:
        """Pass a task's answer. An answer after the task's end changes nothing."""
        if self._settle(running, ask):
            self._go_on(running, running.execution.answer(result))

    def fail(self, running: Running, ask: Ask, name: str, cause: str = "") -> None:
        """Pass a task's failure."""
        if self._settle(running, ask):
            self._trace.tell("task fails", running.name, f"{ask.state}: {name}")
            self._go_on(running, running.execution.fail(TaskFailure(name, cause)))

    def _token(self) -> str:
        self._tokens += 1
        return f"token-{self._tokens}"

    def _count(self) -> None:
        self.transitions += 1

    def _settle(self, running: Running, ask: Ask) -> bool:
        """Whether the execution is still at this task; if so, it leaves it."""
        if running.is_over or running.ask is not ask:
            return False
        if running.timer is not None:
            running.timer.call_off()
        self._waiting.pop(ask.token, None)
        running.ask = running.timer = None
        return True

    def _time_out(self, running: Running, ask: Ask) -> None:
        self.fail(running, ask, TIMED_OUT)

    def _go_on(self, running: Running, move: Move) -> None:
        if running.is_over:
            return
        match move:
            case Ask():
                self._begin(running, move)
            case Delay(seconds=seconds, is_retry=is_retry):
                self.transitions += is_retry  # a retry is billed as one more
                self._agenda.after(seconds, lambda: self._go_on(running, running.execution.go_on()))
            case Done():
                self._end(running, move)

    def _begin(self, running: Running, ask: Ask) -> None:
        running.ask = ask
        running.timer = self._agenda.after(ask.timeout_seconds, lambda: self._time_out(running, ask))
        if ask.resource.endswith("Token"):
            self._waiting[ask.token] = (running, ask)
        self.carry_out(running, ask)

    def _end(self, running: Running, done: Done) -> None:
        running.is_over = True
        del self.live[running.name]
        how = done.failure.name if done.failure else "SUCCEEDED"
        self._trace.tell("ends", running.name, f"{running.stem}: {how}")
        running.then(done)
