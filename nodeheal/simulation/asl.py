"""One interpreter of our state machines (ASL with JSONata), which stops wherever the world has to answer.

An execution says what it wants next: that a task is carried out (`Ask`), that time passes (`Pause`), or nothing more
(`Done`). Whoever drives it answers when it likes: at once, as the walker of the tests does, or hours of virtual time
later. It knows what our files use, and raises for anything else: a file cannot use what would be walked past.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeheal.simulation.expressions import Template

Json = Any
STEMS = ("recover_node", "reboot_node", "run_diagnostics", "replace_node", "restart_workload", "run_job")
STATE_MACHINES = Path(__file__).resolve().parents[2] / "state_machines"
_KNOWN = {
    "Task": {"Resource", "Arguments", "TimeoutSeconds", "Retry", "Catch", "Assign", "Output", "Next", "End"},
    "Choice": {"Choices", "Default"},
    "Pass": {"Assign", "Next"},
    "Wait": {"Seconds", "Next"},
    "Succeed": set(),
    "Fail": {"Error", "Cause"},
}
_KNOWN_OF_RETRY = {"ErrorEquals", "IntervalSeconds", "BackoffRate", "MaxAttempts", "MaxDelaySeconds", "JitterStrategy"}
TIMED_OUT = "States.Timeout"


class NoStateMachines(Exception):
    """The definitions are not there: they come with a checkout, not with the package."""


class Unknown(Exception):
    """A file uses what this interpreter does not know."""


@dataclass(frozen=True)
class Failure:
    """How a task failed, by the name that Retry and Catch see."""

    name: str
    cause: str = ""


@dataclass(frozen=True)
class Ask:
    """A task is to be carried out. `token` is its task token, for the ones that wait."""

    state: str
    resource: str
    arguments: Json
    timeout_seconds: float
    token: str


@dataclass(frozen=True)
class Pause:
    """Time is to pass: a Wait state, or before a task is tried again."""

    state: str
    seconds: float
    is_retry: bool


@dataclass(frozen=True)
class Done:
    """The execution has ended. `failure` None: it succeeded. `is_caught` False: nothing caught the failure."""

    output: Json = None
    failure: Failure | None = None
    is_caught: bool = True


Move = Ask | Pause | Done


class State:
    """One state, read once."""

    def __init__(self, name: str, fields: Mapping[str, Json]) -> None:
        _must_know(name, fields)
        self.name, self.kind, self.fields = name, str(fields["Type"]), fields
        self.resource = str(fields.get("Resource", ""))
        self.retry = tuple(fields.get("Retry", ()))
        self.catch = tuple((catcher, Leaving(catcher)) for catcher in fields.get("Catch", ()))
        self.leaving = Leaving(fields)
        self.choices = tuple((Template(rule["Condition"]), str(rule["Next"])) for rule in fields.get("Choices", ()))
        self._templates = {key: Template(fields[key]) for key in _EVALUATED if key in fields}

    def evaluate(self, key: str, variables: Mapping[str, Json]) -> Json:
        """One of its fields, as it comes out now."""
        return self._templates[key].evaluate(variables)


_EVALUATED = ("Arguments", "TimeoutSeconds", "Seconds", "Error", "Cause")


class Leaving:
    """What is written when a state, or a catcher, is left."""

    def __init__(self, fields: Mapping[str, Json]) -> None:
        self.assign = Template(fields.get("Assign", {}))
        self.output = Template(fields["Output"]) if "Output" in fields else None


@dataclass(frozen=True)
class Definition:
    """One state machine."""

    stem: str
    start_at: str
    states: Mapping[str, State]


def load(stem: str, directory: Path = STATE_MACHINES) -> dict[str, Json]:
    """One file, with placeholders as they are. Raises NoStateMachines."""
    file = directory / f"{stem}.asl.json"
    if not file.is_file():
        raise NoStateMachines(f"{file} is not there: the state machines come with a checkout of nodeheal, not with pip")
    definition: dict[str, Json] = json.loads(file.read_text("utf-8"))
    return definition


def read(stem: str, definition: Mapping[str, Json]) -> Definition:
    """The definition, ready to be executed. Raises Unknown."""
    states = {name: State(name, fields) for name, fields in definition["States"].items()}
    return Definition(stem, str(definition["StartAt"]), states)


def _must_know(name: str, fields: Mapping[str, Json]) -> None:
    unknown = set(fields) - _KNOWN.get(fields["Type"], set()) - {"Type", "Comment"}
    unknown |= {key for retrier in fields.get("Retry", ()) for key in retrier} - _KNOWN_OF_RETRY
    if unknown or fields["Type"] not in _KNOWN:
        raise Unknown(f"{name}: the walker does not know {sorted(unknown) or fields['Type']}")


def _nothing(*_: Any) -> None:
    """Nobody watches."""


@dataclass
class Watcher:
    """Who sees an execution pass: each state that is entered, and what each task and the end give."""

    entered: Callable[[str], None] = _nothing
    left: Callable[[str, Json], None] = _nothing


@dataclass
class Execution:
    """One run of a state machine. It moves only when it is driven."""

    definition: Definition
    arn: str
    given: Json
    started_at: str
    new_token: Callable[[], str]
    jitter: Callable[[], float] = lambda: 1.0  # 0 to 1: how much of a delay is really waited
    watcher: Watcher = field(default_factory=Watcher)
    variables: dict[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._value = self.given
        self._at: State | None = None
        self._token = ""
        self._failures: list[int] = []

    def begin(self) -> Move:
        """From the start to the first thing that the world must answer."""
        return self._enter(self.definition.start_at)

    def answer(self, result: Json) -> Move:
        """The task has given this. On to the next thing."""
        state = self._here()
        self._leave(state.leaving, _as_integrated(state.resource, result))
        self.watcher.left(state.name, self._value)
        if state.fields.get("End"):
            return Done(self._value)
        return self._enter(str(state.fields["Next"]))

    def fail(self, failure: Failure) -> Move:
        """The task has failed: it is tried again, or caught, or all is over."""
        state = self._here()
        for index, retrier in enumerate(state.retry):
            if not _matches(retrier["ErrorEquals"], failure):
                continue
            self._failures[index] += 1
            if self._failures[index] <= int(retrier.get("MaxAttempts", 3)):
                return Pause(state.name, self._delay(retrier, self._failures[index]), is_retry=True)
            break
        for catcher, leaving in state.catch:
            if _matches(catcher["ErrorEquals"], failure):
                self._leave(leaving, error={"Error": failure.name, "Cause": failure.cause})
                self.watcher.left(state.name, self._value)
                return self._enter(str(catcher["Next"]))
        return Done(failure=failure, is_caught=False)

    def go_on(self) -> Move:
        """The time of a pause has passed."""
        state = self._here()
        return self._ask(state) if state.kind == "Task" else self._enter(str(state.fields["Next"]))

    def _here(self) -> State:
        if self._at is None:
            raise RuntimeError(f"{self.arn} has not begun")
        return self._at

    def _enter(self, name: str) -> Move:
        while True:
            state = self._at = self.definition.states[name]
            self.watcher.entered(name)
            match state.kind:
                case "Task":
                    self._failures = [0] * len(state.retry)
                    return self._ask(state)
                case "Wait":
                    return Pause(name, float(state.evaluate("Seconds", self._frame())), is_retry=False)
                case "Succeed":
                    self.watcher.left(name, self._value)
                    return Done(self._value)
                case "Fail":
                    frame = self._frame()
                    cause = str(state.evaluate("Cause", frame)) if "Cause" in state.fields else ""
                    return Done(failure=Failure(str(state.evaluate("Error", frame)), cause))
                case "Choice":
                    name = self._choose(state)
                case _:
                    self._leave(state.leaving, self._value)
                    name = str(state.fields["Next"])

    def _choose(self, state: State) -> str:
        frame = self._frame()
        for condition, following in state.choices:
            if condition.evaluate(frame) is True:
                return following
        return str(state.fields["Default"])

    def _ask(self, state: State) -> Ask:
        self._token = self.new_token()
        frame = self._frame()
        seconds = float(state.evaluate("TimeoutSeconds", frame))
        return Ask(state.name, state.resource, state.evaluate("Arguments", frame), seconds, self._token)

    def _delay(self, retrier: Json, number: int) -> float:
        """Seconds before the task is tried again for the so-manieth time."""
        full = float(retrier.get("IntervalSeconds", 1)) * float(retrier.get("BackoffRate", 2)) ** (number - 1)
        full = min(full, float(retrier.get("MaxDelaySeconds", full)))
        return full * self.jitter() if retrier.get("JitterStrategy") == "FULL" else full

    def _leave(self, leaving: Leaving, result: Json = None, error: Json = None) -> None:
        """Assign and Output see the same variables, as they were before."""
        frame = self._frame(result, error)
        assigned = leaving.assign.evaluate(frame)
        default = result if error is None else error
        self._value = leaving.output.evaluate(frame) if leaving.output is not None else default
        self.variables = {**self.variables, **assigned}

    def _frame(self, result: Json = None, error: Json = None) -> dict[str, Json]:
        execution = {"Id": self.arn, "Input": self.given, "StartTime": self.started_at}
        context = {"Execution": execution, "Task": {"Token": self._token}}
        states = {"input": self._value, "result": result, "errorOutput": error, "context": context}
        return {**self.variables, "states": states}


def _as_integrated(resource: str, answer: Json) -> Json:
    """How each integration wraps what the other side answers."""
    if resource.endswith(":lambda:invoke"):
        return {"StatusCode": 200, "Payload": answer}
    if resource.endswith(".sync:2"):
        return {"Status": "SUCCEEDED", "Output": answer}
    return answer


def _matches(names: list[str], failure: Failure) -> bool:
    if failure.name in names or "States.ALL" in names:
        return True
    return "States.TaskFailed" in names and failure.name != TIMED_OUT
