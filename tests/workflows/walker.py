"""Walks one ASL file (JSONata) with stub tasks, in milliseconds: no clock, no network.

It knows what our files use: Task, Choice, Pass, Wait, Succeed and Fail; of a Task Arguments, Assign, Output, Retry,
Catch and TimeoutSeconds. Anything else raises, so that a file cannot use what the walker would walk past.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jsonata import Jsonata

Json = Any
Answer = Any  # what a task answers, an Error to raise, or a function of the arguments that gives either

STATE_MACHINES = Path(__file__).resolve().parents[2] / "state_machines"
EXECUTION_ARN = "arn:aws:states:eu-west-1:111122223333:execution:walked:inc-1"
TASK_TOKEN = "token-of-this-wait"
STATES_MAY_TAKE = 200  # far more than any file walks: a loop that does not end is a failure, not a hang
_KNOWN = {
    "Task": {"Resource", "Arguments", "TimeoutSeconds", "Retry", "Catch", "Assign", "Output", "Next", "End"},
    "Choice": {"Choices", "Default"},
    "Pass": {"Assign", "Next"},
    "Wait": {"Seconds", "Next"},
    "Succeed": set(),
    "Fail": {"Error", "Cause"},
}

_KEPT_AT_MOST = 10_000
_KEPT: dict[tuple[str, str], str] = {}  # what expressions gave, by the values that they read
_NOTHING = "nothing stands there"
_PATH = re.compile(r"\$([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


@dataclass(frozen=True)
class Error:
    """A task that fails with this error name."""

    name: str
    cause: str = "as the test wants it"


TIMEOUT = Error("States.Timeout")


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

    @property
    def end(self) -> str:
        """The last state."""
        return self.path[-1]

    def arguments_of(self, state: str) -> list[Json]:
        """What a task was asked, each time."""
        return [arguments for name, arguments in self.asked if name == state]


def load(stem: str) -> dict[str, Json]:
    """One definition, with placeholders as they are."""
    definition: dict[str, Json] = json.loads((STATE_MACHINES / f"{stem}.asl.json").read_text("utf-8"))
    return definition


def walk(stem: str, given: Json, answers: Mapping[str, Answer]) -> Walk:
    """Walk a file from its start. A task without an answer is an error of the test."""
    return _Walker(load(stem), given, answers).run()


class _Failed(Exception):
    def __init__(self, error: Error) -> None:
        super().__init__(error.name)
        self.error = error


class _Walker:
    def __init__(self, definition: Mapping[str, Json], given: Json, answers: Mapping[str, Answer]) -> None:
        self._states: Mapping[str, Json] = definition["States"]
        self._next: str | None = definition["StartAt"]
        self._given = given
        self._value = given
        self._answers = {name: Sequence(a) if isinstance(a, Sequence) else a for name, a in answers.items()}
        self._variables: dict[str, Json] = {}
        self._seen = Walk()

    def run(self) -> Walk:
        while self._next is not None:
            if len(self._seen.path) >= STATES_MAY_TAKE:
                raise AssertionError(f"no end after {STATES_MAY_TAKE} states: {self._seen.path[-6:]}")
            name, state = self._next, self._states[self._next]
            unknown = set(state) - _KNOWN[state["Type"]] - {"Type", "Comment"}
            assert not unknown, f"{name}: the walker does not know {sorted(unknown)}"
            self._seen.path.append(name)
            self._next = getattr(self, f"_{state['Type'].lower()}")(name, state)
        return self._seen

    def _succeed(self, name: str, state: Json) -> None:
        self._seen.output = self._value
        self._seen.outputs.append((name, self._value))

    def _fail(self, name: str, state: Json) -> None:
        self._seen.error = self._evaluate(state["Error"])

    def _pass(self, name: str, state: Json) -> str:
        self._leave(state, result=self._value)
        return str(state["Next"])

    def _wait(self, name: str, state: Json) -> str:
        self._seen.deadlines[name] = self._evaluate(state["Seconds"])
        return str(state["Next"])

    def _choice(self, name: str, state: Json) -> str:
        for rule in state["Choices"]:
            if self._evaluate(rule["Condition"]) is True:
                return str(rule["Next"])
        return str(state["Default"])

    def _task(self, name: str, state: Json) -> str | None:
        attempts = [0] * len(state["Retry"])
        while True:
            try:
                result = self._call(name, state)
            except _Failed as failed:
                if self._may_retry(state["Retry"], attempts, failed.error):
                    continue
                following = self._caught(state, failed)
                self._seen.outputs.append((name, self._value))
                return following
            self._leave(state, result=result)
            self._seen.outputs.append((name, self._value))
            if state.get("End"):
                self._seen.output = self._value
                return None
            return str(state["Next"])

    def _call(self, name: str, state: Json) -> Json:
        arguments = self._evaluate(state["Arguments"])
        self._seen.asked.append((name, arguments))
        self._seen.deadlines[name] = self._evaluate(state["TimeoutSeconds"])
        answer = self._answers[name]
        if isinstance(answer, Sequence):
            answer = answer.pop(0)
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            answer = answer(arguments)
        if isinstance(answer, Error):
            raise _Failed(answer)
        return _as_integrated(state["Resource"], answer)

    def _may_retry(self, retriers: Json, attempts: list[int], error: Error) -> bool:
        for index, retrier in enumerate(retriers):
            if _matches(retrier["ErrorEquals"], error):
                attempts[index] += 1
                return attempts[index] <= int(retrier["MaxAttempts"])
        return False

    def _caught(self, state: Json, failed: _Failed) -> str:
        for catcher in state["Catch"]:
            if _matches(catcher["ErrorEquals"], failed.error):
                self._leave(catcher, error={"Error": failed.error.name, "Cause": failed.error.cause})
                return str(catcher["Next"])
        raise AssertionError(f"{failed.error.name} is caught by nothing") from failed

    def _leave(self, fields: Json, result: Json = None, error: Json = None) -> None:
        """Assign and Output see the same variables, as they were before."""
        assigned = self._evaluate(fields.get("Assign", {}), result, error)
        default = result if error is None else error
        output = self._evaluate(fields["Output"], result, error) if "Output" in fields else default
        self._variables |= assigned
        self._value = output

    def _evaluate(self, template: Json, result: Json = None, error: Json = None) -> Json:
        if isinstance(template, dict):
            return {key: self._evaluate(value, result, error) for key, value in template.items()}
        if isinstance(template, list):
            return [self._evaluate(value, result, error) for value in template]
        if not (isinstance(template, str) and template.startswith("{%")):
            return template
        return _evaluated(template, {**self._variables, "states": self._states_object(result, error)})

    def _states_object(self, result: Json, error: Json) -> Json:
        context = {
            "Execution": {"Id": EXECUTION_ARN, "Input": self._given, "StartTime": "2026-11-21T05:50:31.123Z"},
            "Task": {"Token": TASK_TOKEN},
        }
        return {"input": self._value, "result": result, "errorOutput": error, "context": context}


def _evaluated(template: str, variables: Mapping[str, Json]) -> Json:
    """An expression is pure: what it gave for the same values, it gives again."""
    key = template, json.dumps([_at(path, variables) for path in _paths_in(template)])
    if key not in _KEPT:
        if len(_KEPT) >= _KEPT_AT_MOST:
            _KEPT.clear()
        expression = _parsed(template)
        frame = expression.create_frame()
        for name, value in variables.items():
            frame.bind(name, value)
        _KEPT[key] = json.dumps(expression.evaluate(None, frame))
    return json.loads(_KEPT[key])


@cache
def _paths_in(template: str) -> list[list[str]]:
    """What it reads: `$states.input.outcome`; of functions, too, which are no variables."""
    return [path.split(".") for path in _PATH.findall(template)]


def _at(path: list[str], variables: Mapping[str, Json]) -> Json:
    """The value there, or the last one on the way that is no object: more than it reads, but never less."""
    found: Json = variables
    for name in path:
        if not isinstance(found, Mapping):
            return found
        if name not in found:
            return [_NOTHING]  # which is not the same as null
        found = found[name]
    return found


@cache
def _parsed(template: str) -> Jsonata:
    return Jsonata(template.removeprefix("{%").removesuffix("%}"))


def _as_integrated(resource: str, answer: Json) -> Json:
    """How each integration wraps what the other side answers."""
    if resource.endswith(":lambda:invoke"):
        return {"StatusCode": 200, "Payload": answer}
    if resource.endswith(".sync:2"):
        return {"Status": "SUCCEEDED", "Output": answer}
    return answer


def _matches(names: list[str], error: Error) -> bool:
    if error.name in names or "States.ALL" in names:
        return True
    return "States.TaskFailed" in names and error.name != "States.Timeout"
