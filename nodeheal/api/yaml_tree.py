"""YAML as data that JSON could hold, and the line of each field. Never a Python object, whatever a tag asks for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

LARGEST = 256 * 1024  # bytes
DEEPEST = 32
MOST_VALUES = 10_000  # an alias of aliases can stand for billions
MOST_CHARACTERS = 1024 * 1024  # with every alias written out
LARGEST_NUMBER = 2**63 - 1  # digits in base 16 and 60 have no end, and Python refuses to write such a number
NUMBER_CHARACTERS = 64
_WORDS = "tag:yaml.org,2002:"
_PLAIN = ("null", "bool", "int", "float")
# What YAML reads otherwise and nobody means in a configuration: a date, and the word for a merge.
_TEXT = ("str", "timestamp", "merge", "value")

Loc = tuple[int | str, ...]


class YamlRefused(ValueError):
    """What is wrong, and in which line."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class Tree:
    """The document's values, and where each of them begins."""

    value: object
    lines: dict[Loc, int]

    def line_of(self, loc: Loc) -> int:
        """The line of this field, or of the nearest one around it that is there."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)


def read_tree(raw: bytes) -> Tree:
    """Raises YamlRefused for what is no single YAML document of plain values, keys twice included."""
    if len(raw) > LARGEST:
        raise YamlRefused(1, f"it has more than {LARGEST // 1024} KiB: a job file is smaller")
    try:
        root = yaml.compose(raw.decode("utf-8"), Loader=_Loader)
        if root is None:
            raise YamlRefused(1, "it is empty")
        reader = _Reader()
        value = reader.read(root, ())
    except yaml.YAMLError as error:
        raise YamlRefused(_line_of_error(error), _words_of(error)) from None
    except UnicodeDecodeError as error:
        raise YamlRefused(raw.count(b"\n", 0, error.start) + 1, "it is not UTF-8 text") from None
    return Tree(value, reader.lines)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Stops where it gets too deep: PyYAML's scanner needs seconds for some thousand brackets."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        line = self.peek_event().start_mark.line + 1
        self._depth += 1
        if self._depth > DEEPEST + 1:
            raise YamlRefused(line, f"it is nested deeper than {DEEPEST} levels")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[Loc, int] = {}
        self._values = 0
        self._characters = 0

    def read(self, node: Any, loc: Loc) -> object:
        line = node.start_mark.line + 1
        self.lines.setdefault(loc, line)
        self._values += 1
        self._characters += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        if len(loc) > DEEPEST:
            raise YamlRefused(line, f"it is nested deeper than {DEEPEST} levels")
        if self._values > MOST_VALUES:
            raise YamlRefused(line, f"it holds more than {MOST_VALUES:,} values")
        if self._characters > MOST_CHARACTERS:
            raise YamlRefused(line, f"it holds more than {MOST_CHARACTERS:,} characters")
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, loc))
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*loc, index)) for index, item in enumerate(node.value)]
        return _scalar(node, line)

    def _pairs(self, node: Any, loc: Loc) -> Iterator[tuple[str, object]]:
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = _scalar(key, line) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(name, str):
                raise YamlRefused(line, f"{_shown(key)}: a field's name is text; put it in quotes if it is meant so")
            if name in lines:
                raise YamlRefused(line, f"{name}: stands in line {lines[name]} already; only one of them would hold")
            lines[name] = line
            self.lines[(*loc, name)] = line
            yield name, self.read(value, (*loc, name))


def _scalar(node: Any, line: int) -> object:
    kind = node.tag.removeprefix(_WORDS)
    if not node.value.isascii() and any("\ud800" <= c <= "\udfff" for c in node.value):
        raise YamlRefused(line, "it holds half a character (a lone surrogate)")
    if kind in _TEXT:
        return str(node.value)
    if kind in ("int", "float") and len(node.value) > NUMBER_CHARACTERS:
        raise YamlRefused(line, f"{_shown(node)}: a number of more than {NUMBER_CHARACTERS} characters")
    if kind not in _PLAIN:
        raise YamlRefused(line, f"{_shown(node)}: the tag {node.tag} means nothing here")
    try:
        value: object = yaml.constructor.SafeConstructor().construct_object(node)
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise YamlRefused(line, f"{_shown(node)}: it is not valid as {kind} ({error})") from None
    if isinstance(value, int) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise YamlRefused(line, f"{_shown(node)}: the number does not fit into 64 bits")
    return value


def _shown(node: Any) -> str:
    return repr(node.value)[:60] if isinstance(node, yaml.ScalarNode) else "a list or an object"


def _line_of_error(error: Exception) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return mark.line + 1 if mark else 1


def _words_of(error: Exception) -> str:
    parts = [getattr(error, "context", None), getattr(error, "problem", None) or getattr(error, "reason", None)]
    return f"it is not YAML: {'; '.join(str(part) for part in parts if part) or error}"
