"""Evaluates the JSONata of state machines, with a cache.

The library `jsonata` evaluates every template. The cache relies on an expression being a pure function of the variables
that it names: where all of those are single words or numbers, its result is stored.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonata import Jsonata

Json = Any
KEPT = 4_096  # cached results of one expression
_IMPURE = frozenset({"now", "millis", "random", "uuid"})
_SINGLE = (str, int, float, bool, type(None))
_MISSING = object()
_NO_KEY = ()


class Template:
    """A parsed JSON value with expressions. `reads_input`: it may need the state's input."""

    reads_input: bool

    def __init__(self, value: Json) -> None:
        self._value = value
        self._items: list[tuple[Any, Template]] = []
        self._expression = _expression(value) if isinstance(value, str) and value.startswith("{%") else None
        if isinstance(value, dict):
            self._items = [(key, Template(inner)) for key, inner in value.items()]
        elif isinstance(value, list):
            self._items = [(None, Template(inner)) for inner in value]
        self.reads_input = any(inner.reads_input for _, inner in self._items)
        if self._expression is not None:
            self.reads_input = self._expression.reads_input
        self._is_constant: bool = self._expression is None and all(inner._is_constant for _, inner in self._items)

    def evaluate(self, variables: Mapping[str, Json]) -> Json:
        """Return the value as Step Functions would compute it with these variables, $states among them."""
        if self._is_constant:
            return self._value
        if self._expression is not None:
            return self._expression.evaluate(variables)
        if isinstance(self._value, dict):
            return {key: inner.evaluate(variables) for key, inner in self._items}
        return [inner.evaluate(variables) for _, inner in self._items]


class Expression:
    """One parsed expression, with its cached results."""

    def __init__(self, source: str) -> None:
        self._parsed = Jsonata(source)
        named = list(_named(self._parsed.ast))
        self._paths = tuple(sorted(set(named)))
        self._is_pure = not any(path[0] in _IMPURE for path in self._paths)
        # Whether it needs the state's input: all of $states, or only that.
        self.reads_input = any(path[:2] in (("states",), ("states", "input")) for path in self._paths)
        self._answers: dict[tuple[Any, ...], Json] = {}

    def evaluate(self, variables: Mapping[str, Json]) -> Json:
        """Return the expression's result."""
        key = self._key(variables) if self._is_pure else _NO_KEY
        if key is _NO_KEY:
            return self._parsed.evaluate(None, variables)
        if key not in self._answers:
            if len(self._answers) >= KEPT:
                self._answers.clear()
            answer = self._parsed.evaluate(None, variables)
            if not isinstance(answer, _SINGLE):
                self._is_pure = False  # a mutable result is not shared
                return answer
            self._answers[key] = answer
        return self._answers[key]

    def _key(self, variables: Mapping[str, Json]) -> tuple[Any, ...]:
        """Return the values that determine the result; empty where one of them is more than a word or a number."""
        key: list[Any] = [""]
        for path in self._paths:
            value = _at(path, variables)
            if value is not _MISSING and not isinstance(value, _SINGLE):
                return _NO_KEY
            key += [type(value), value]
        return tuple(key)


@cache
def _expression(template: str) -> Expression:
    return Expression(template.removeprefix("{%").removesuffix("%}"))


def _at(path: tuple[str, ...], variables: Mapping[str, Json]) -> Json:
    """Return the value at the path, or the first value on it that is not an object: the result may depend on all of
    that.
    """
    value: Json = variables
    for name in path:
        if not isinstance(value, dict):
            return value
        value = value.get(name, _MISSING)
    return value


def _named(node: Any) -> Iterator[tuple[str, ...]]:
    """Return the paths that an expression reads. A path is cut where it contains more than names."""
    if isinstance(node, (list, tuple)):
        for part in node:
            yield from _named(part)
    elif getattr(node, "type", None) == "variable":
        yield (str(node.value),)
    elif getattr(node, "type", None) == "path" and node.steps[0].type == "variable":
        yield tuple(_plain(node.steps))
        yield from _named([inner for step in node.steps for inner in _parts(step)])
        yield from _named([step for step in node.steps[1:] if step.type != "name"])
    elif hasattr(node, "type"):
        yield from _named(_parts(node))


def _plain(steps: Any) -> Iterator[str]:
    yield str(steps[0].value)
    if _parts(steps[0]):
        return
    for step in steps[1:]:
        if step.type != "name" or _parts(step):
            return
        yield str(step.value)


def _parts(node: Any) -> list[Any]:
    """Yield the parts of a node of the syntax tree."""
    inner = (value for name, value in sorted(vars(node).items()) if name != "_outer_instance")
    return [value for value in inner if isinstance(value, (list, tuple)) or hasattr(value, "lbp")]
