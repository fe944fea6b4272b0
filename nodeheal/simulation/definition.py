"""Parses state machines once, with all their expressions, and refuses unknown elements."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeheal.simulation.expressions import Template

Json = Any
STEMS = ("recover_node", "run_job")
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


class NoStateMachines(Exception):
    """The definitions are missing: they come with a checkout, not with the package."""


class Unknown(Exception):
    """A file uses an element that this interpreter does not support."""


class State:
    """One parsed state."""

    def __init__(self, name: str, fields: Mapping[str, Json]) -> None:
        _must_know(name, fields)
        self.name, self.kind, self.fields = name, str(fields["Type"]), fields
        self.resource = str(fields.get("Resource", ""))
        self.retry = tuple(fields.get("Retry", ()))
        self.catch = tuple((catcher, Leaving(catcher)) for catcher in fields.get("Catch", ()))
        self.leaving = Leaving(fields)
        self.choices = tuple((Template(rule["Condition"]), str(rule["Next"])) for rule in fields.get("Choices", ()))
        self._templates = {key: Template(fields[key]) for key in _EVALUATED if key in fields}
        self.reads_input = any(template.reads_input for template in self.templates)

    @property
    def templates(self) -> list[Template]:
        """Return every template of the state, and of its transitions."""
        ways = [self.leaving, *(leaving for _, leaving in self.catch)]
        out = [template for way in ways for template in (way.assign, way.output) if template is not None]
        return [*self._templates.values(), *(condition for condition, _ in self.choices), *out]

    def evaluate(self, key: str, variables: Mapping[str, Json]) -> Json:
        """Evaluate one of its fields."""
        return self._templates[key].evaluate(variables)


_EVALUATED = ("Arguments", "TimeoutSeconds", "Seconds", "Error", "Cause")


class Leaving:
    """The assignments and output of a state or a catcher."""

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
    """Load one file, with its placeholders unchanged. Raises NoStateMachines."""
    file = directory / f"{stem}.asl.json"
    if not file.is_file():
        raise NoStateMachines(
            f"{file} does not exist: the state machines come with a checkout of nodeheal, not with pip"
        )
    definition: dict[str, Json] = json.loads(file.read_text("utf-8"))
    return definition


def read(stem: str, definition: Mapping[str, Json]) -> Definition:
    """Parse the definition for execution. Raises Unknown."""
    states = {name: State(name, fields) for name, fields in definition["States"].items()}
    return Definition(stem, str(definition["StartAt"]), states)


def _must_know(name: str, fields: Mapping[str, Json]) -> None:
    unknown = set(fields) - _KNOWN.get(fields["Type"], set()) - {"Type", "Comment"}
    unknown |= {key for retrier in fields.get("Retry", ()) for key in retrier} - _KNOWN_OF_RETRY
    if unknown or fields["Type"] not in _KNOWN:
        raise Unknown(f"{name}: the interpreter does not support {sorted(unknown) or fields['Type']}")
