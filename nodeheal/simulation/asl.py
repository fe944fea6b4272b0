"""Interprets nodeheal's state machines (ASL with JSONata), and stops wherever the world has to answer.

An execution returns what it needs next: the result of a task (`Ask`), the passing of time (`Delay`), or nothing
(`Done`). The driver answers when it likes: at once, as in the tests, or hours of virtual time later. It supports what
nodeheal's files use, and raises for anything else, so that no part of a file is ignored.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nodeheal.simulation.definition import Definition, Leaving, State

if TYPE_CHECKING:
    from nodeheal.simulation.expressions import Template

Json = Any
TIMED_OUT = "States.Timeout"


@dataclass(frozen=True)
class TaskFailure:
    """The failure of a task, with the error name for Retry and Catch."""

    name: str
    cause: str = ""


@dataclass(frozen=True)
class Ask:
    """A task needs its result. `token` is its task token, where it waits for a callback."""

    state: str
    resource: str
    arguments: Json
    timeout_seconds: float
    token: str


@dataclass(frozen=True)
class Delay:
    """Time has to pass: a Wait state, or the delay before a retry."""

    state: str
    seconds: float
    is_retry: bool


@dataclass(frozen=True)
class Done:
    """The execution has ended. `failure` None: it succeeded. `is_caught` False: nothing caught the failure."""

    output: Json = None
    failure: TaskFailure | None = None
    is_caught: bool = True


Move = Ask | Delay | Done


def _nothing(*_: Any) -> None:
    """Ignore the event: the default watcher."""


@dataclass
class Watcher:
    """Observes an execution: each state that is entered, and the results of tasks and of the end."""

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
    jitter: Callable[[], float] = lambda: 1.0  # 0 to 1: the share of a delay that really passes
    watcher: Watcher = field(default_factory=Watcher)
    is_strict: bool = True  # false: an output that no later state reads is not evaluated
    variables: dict[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known: Json = self.given
        self._pending: tuple[Template, dict[str, Json]] | None = None
        self._at: State | None = None
        self._token = ""
        self._failures: list[int] = []

    def begin(self) -> Move:
        """Run from the start to the first request."""
        return self._enter(self.definition.start_at)

    def answer(self, result: Json) -> Move:
        """Pass a task's result, and run to the next request."""
        state = self._here()
        self._leave(state.leaving, _as_integrated(state.resource, result))
        self._tell_left(state)
        if state.fields.get("End"):
            return Done(self._value)
        return self._enter(str(state.fields["Next"]))

    def fail(self, failure: TaskFailure) -> Move:
        """Pass a task's failure: it is retried, or caught, or ends the execution."""
        state = self._here()
        for index, retrier in enumerate(state.retry):
            if not _matches(retrier["ErrorEquals"], failure):
                continue
            self._failures[index] += 1
            if self._failures[index] <= int(retrier.get("MaxAttempts", 3)):
                return Delay(state.name, self._delay(retrier, self._failures[index]), is_retry=True)
            break
        for catcher, leaving in state.catch:
            if _matches(catcher["ErrorEquals"], failure):
                self._leave(leaving, error={"Error": failure.name, "Cause": failure.cause})
                self._tell_left(state)
                return self._enter(str(catcher["Next"]))
        return Done(failure=failure, is_caught=False)

    def go_on(self) -> Move:
        """End a pause, and run to the next request."""
        state = self._here()
        return self._ask(state) if state.kind == "Task" else self._enter(str(state.fields["Next"]))

    @property
    def _value(self) -> Json:
        """Return the output of the last state."""
        if self._pending is not None:
            template, frame = self._pending
            self._known, self._pending = template.evaluate(frame), None
        return self._known

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
                    return Delay(name, float(state.evaluate("Seconds", self._frame())), is_retry=False)
                case "Succeed":
                    self._tell_left(state)
                    return Done(self._value)
                case "Fail":
                    frame = self._frame()
                    cause = str(state.evaluate("Cause", frame)) if "Cause" in state.fields else ""
                    return Done(failure=TaskFailure(str(state.evaluate("Error", frame)), cause))
                case "Choice":
                    name = self._choose(state)
                case _:
                    self._leave(state.leaving, self._value)
                    name = str(state.fields["Next"])

    def _tell_left(self, state: State) -> None:
        if self.is_strict:
            self.watcher.left(state.name, self._value)

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
        """Return the seconds before retry `number`, from 1."""
        full = float(retrier.get("IntervalSeconds", 1)) * float(retrier.get("BackoffRate", 2)) ** (number - 1)
        full = min(full, float(retrier.get("MaxDelaySeconds", full)))
        return full * self.jitter() if retrier.get("JitterStrategy") == "FULL" else full

    def _leave(self, leaving: Leaving, result: Json = None, error: Json = None) -> None:
        """Leave a state: Assign and Output see the same variables, as they were before."""
        frame = self._frame(result, error)
        assigned = leaving.assign.evaluate(frame)
        self._known, self._pending = (result if error is None else error), None
        if leaving.output is not None:
            self._pending = (leaving.output, frame)
            if self.is_strict:
                self._known, self._pending = leaving.output.evaluate(frame), None
        self.variables = {**self.variables, **assigned}

    def _frame(self, result: Json = None, error: Json = None) -> dict[str, Json]:
        execution = {"Id": self.arn, "Input": self.given, "StartTime": self.started_at}
        context = {"Execution": execution, "Task": {"Token": self._token}}
        needs = self._at is None or self._at.reads_input
        states = {"input": self._value if needs else None, "result": result, "errorOutput": error, "context": context}
        return {**self.variables, "states": states}


def _as_integrated(resource: str, answer: Json) -> Json:
    """Wrap the answer of a task as its integration does."""
    if resource.endswith(":lambda:invoke"):
        return {"StatusCode": 200, "Payload": answer}
    if resource.endswith(".sync:2"):
        return {"Status": "SUCCEEDED", "Output": answer}
    return answer


def _matches(names: list[str], failure: TaskFailure) -> bool:
    if failure.name in names or "States.ALL" in names:
        return True
    return "States.TaskFailed" in names and failure.name != TIMED_OUT
