"""Walks one ASL file (JSONata) with stub tasks, in milliseconds: no clock, no network.

The interpreter is the simulation's (`nodeheal/simulation/asl.py`), so that there is one. This drives it: each task is
answered at once, and no time passes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from nodeheal.simulation.asl import Ask, Delay, Done, Execution, Move, TaskFailure, Watcher
from nodeheal.simulation.definition import STATE_MACHINES, Definition, load, read

__all__ = [
    "EXECUTION_ARN",
    "STATE_MACHINES",
    "STOPPED",
    "TASK_TOKEN",
    "TIMEOUT",
    "Error",
    "Sequence",
    "Walk",
    "load",
    "walk",
]

Json = Any
Answer = Any  # what a task answers, an Error to raise, or a function of the arguments that gives either

EXECUTION_ARN = "arn:aws:states:eu-west-1:111122223333:execution:walked:inc-1"
TASK_TOKEN = "token-of-this-wait"
STATES_MAY_TAKE = 200  # far more than any file walks: a loop that does not end is a failure, not a hang


@dataclass(frozen=True)
class Error:
    """A task that fails with this error name."""

    name: str
    cause: str = "as the test wants it"


TIMEOUT = Error("States.Timeout")
# Somebody stops the execution while it is in this state: nothing catches that.
STOPPED = Error("(stopped)")


class Sequence(list[Answer]):
    """Answers of one task, in the order in which it is asked."""


@dataclass
class Walk:
    """What happened: the states in order, what each task was asked and allowed, and how it ended."""

    path: list[str] = field(default_factory=list)
    asked: list[tuple[str, Json]] = field(default_factory=list)
    deadlines: dict[str, float] = field(default_factory=dict)
    outputs: list[tuple[str, Json]] = field(default_factory=list)  # of each task that went well, and of the end
    output: Json = None
    error: str | None = None
    # Of an execution that was stopped: go on as RedriveExecution does, in the state where it was, with what it knew.
    redrive: "Callable[[], Walk] | None" = None

    @property
    def end(self) -> str:
        """The last state."""
        return self.path[-1]

    def arguments_of(self, state: str) -> list[Json]:
        """What a task was asked, each time."""
        return [arguments for name, arguments in self.asked if name == state]


def walk(stem: str, given: Json, answers: Mapping[str, Answer]) -> Walk:
    """Walk a file from its start. A task without an answer is an error of the test."""
    seen = Walk()
    ready = {name: Sequence(answer) if isinstance(answer, Sequence) else answer for name, answer in answers.items()}
    watcher = Watcher(lambda name: _enter(seen, name), lambda name, value: seen.outputs.append((name, value)))
    execution = Execution(
        _definition(stem), EXECUTION_ARN, given, "2026-11-21T05:50:31.123Z", lambda: TASK_TOKEN, watcher=watcher
    )
    return _drive(execution, execution.begin(), ready, seen)


class _Stopped(Exception):
    """The execution was stopped."""


def _drive(execution: Execution, move: Move, answers: dict[str, Answer], seen: Walk) -> Walk:
    seen.redrive = None
    while not isinstance(move, Done):
        asked = move
        try:
            move = _go_on(execution, asked, answers, seen)
        except _Stopped:
            seen.redrive = partial(_go_on_in, asked, execution, answers, seen)
            return seen
    if not move.is_caught:
        raise AssertionError(f"{move.failure} is caught by nothing")
    seen.output, seen.error = move.output, move.failure.name if move.failure else None
    return seen


def _go_on_in(move: Ask | Delay, execution: Execution, answers: dict[str, Answer], seen: Walk) -> Walk:
    _enter(seen, move.state)
    return _drive(execution, move, answers, seen)


@cache
def _definition(stem: str) -> Definition:
    return read(stem, load(stem))


def _enter(seen: Walk, name: str) -> None:
    if len(seen.path) >= STATES_MAY_TAKE:
        raise AssertionError(f"no end after {STATES_MAY_TAKE} states: {seen.path[-6:]}")
    seen.path.append(name)


def _go_on(execution: Execution, move: Ask | Delay, answers: dict[str, Answer], seen: Walk) -> Move:
    if isinstance(move, Delay):
        if not move.is_retry:
            seen.deadlines[move.state] = move.seconds
        return execution.go_on()
    seen.asked.append((move.state, move.arguments))
    seen.deadlines[move.state] = move.timeout_seconds
    answer = answers[move.state]
    if isinstance(answer, Sequence):
        answer = answer.pop(0)
    if isinstance(answer, Callable):  # type: ignore[arg-type]
        answer = answer(move.arguments)
    if answer is STOPPED:
        raise _Stopped
    if isinstance(answer, Error):
        return execution.fail(TaskFailure(answer.name, answer.cause))
    return execution.answer(answer)


def steps(walked: Walk) -> list[str]:
    left_out = ("Open incident", "Decide next step", "Which step?", "Search for a checkpoint?", "Find checkpoint")
    return [s for s in walked.path if s not in left_out]
