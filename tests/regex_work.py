"""Counts the steps that a backtracking matcher takes, so that a test finds slow patterns without a clock.

Python's `re` backtracks. Its work cannot be read from outside, so patterns are walked here as `re` parses them.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

LETTERS = " aA0-_.,:;/|+=<>[](){}'\"\\\t\n\rGxXé\0"

Node = tuple[Any, Any]
Then = Callable[[int], bool]


class TooMuchWork(Exception):
    """The matcher took more steps than it was allowed."""


class Matcher:
    """One pattern on one text. `steps` says how much work was done."""

    def __init__(self, pattern: "re.Pattern[str] | re.Pattern[bytes]", text: str, most_steps: int) -> None:
        self.steps = 0
        self._most, self._text = most_steps, text
        self._tree, self._flags = list(parse(pattern)), pattern.flags
        self._fits: dict[tuple[int, str], bool] = {}  # whether a class of letters, by its identity, takes a letter

    def search(self) -> bool:
        """Try every place, as `re.search` does."""
        return any(self._run(self._tree, at, lambda _: True) for at in range(len(self._text) + 1))

    def match(self, *, whole: bool = False) -> bool:
        """Try the beginning only, as `re.match` does, or `re.fullmatch`."""
        return self._run(self._tree, 0, lambda end: end == len(self._text) if whole else True)

    def _run(self, nodes: list[Node], at: int, then: Then) -> bool:
        self._count()
        if not nodes:
            return then(at)
        (kind, value), rest = nodes[0], nodes[1:]
        if is_one_letter(nodes[0]):
            return at < len(self._text) and self._takes(nodes[0], at) and self._run(rest, at + 1, then)
        match kind:
            case op.BRANCH:
                return any(self._run([*one, *rest], at, then) for one in value[1])
            case op.SUBPATTERN:
                return self._run([*value[3], *rest], at, then)
            case op.ATOMIC_GROUP:
                return self._run([*value, *rest], at, then)
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                least, most, body = value
                order = kind is not op.MIN_REPEAT
                if len(body) == 1 and is_one_letter(body[0]):
                    return self._letters(body[0], least, most, order, at, lambda end: self._run(rest, end, then))
                return self._groups(list(body), least, most, order, at, lambda end: self._run(rest, end, then))
            case op.AT:
                return self._is_at(value, at) and self._run(rest, at, then)
            case op.ASSERT | op.ASSERT_NOT:
                start = at - sum(self._width(one) for one in value[1]) if value[0] < 0 else at
                found = start >= 0 and self._run(list(value[1]), start, lambda _: True)
                return found is (kind is op.ASSERT) and self._run(rest, at, then)
        raise NotImplementedError(str(kind))

    def _letters(self, node: Node, least: int, most: int, is_greedy: bool, at: int, then: Then) -> bool:
        end = at
        while end < len(self._text) and end - at < most and self._takes(node, end):
            self._count()
            end += 1
        ends = range(at + least, end + 1)
        return any(then(one) for one in (reversed(ends) if is_greedy else ends))

    def _groups(self, body: list[Node], least: int, most: int, is_greedy: bool, at: int, then: Then) -> bool:
        def again() -> bool:
            onward = lambda end: end != at and self._groups(body, max(0, least - 1), most - 1, is_greedy, end, then)  # noqa: E731
            return most > 0 and self._run(body, at, onward)

        if least > 0:
            return again()
        return again() or then(at) if is_greedy else then(at) or again()

    def _is_at(self, where: object, at: int) -> bool:
        if where in (op.AT_BOUNDARY, op.AT_NON_BOUNDARY):
            before = at > 0 and is_word(self._text[at - 1])
            after = at < len(self._text) and is_word(self._text[at])
            return (before != after) is (where is op.AT_BOUNDARY)
        lines = bool(self._flags & re.MULTILINE)
        if where in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return at == 0 or (lines and self._text[at - 1] == "\n")
        return at == len(self._text) or (
            where is op.AT_END and self._text[at] == "\n" and (lines or at + 1 == len(self._text))
        )

    @staticmethod
    def _width(node: Node) -> int:
        return 1 if is_one_letter(node) else 0

    def _takes(self, node: Node, at: int) -> bool:
        """Whether a node of one letter takes the letter there."""
        letter = self._text[at]
        if node[0] is not op.IN:
            return fits(node, letter, self._flags)
        key = id(node[1]), letter
        if key not in self._fits:
            self._fits[key] = fits(node, letter, self._flags)
        return self._fits[key]

    def _count(self) -> None:
        self.steps += 1
        if self.steps > self._most:
            raise TooMuchWork


@cache
def parse(pattern: "re.Pattern[str] | re.Pattern[bytes]") -> Any:
    """The tree of a compiled pattern."""
    return _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


def is_word(letter: str) -> bool:
    """Whether `\\w` takes it."""
    return letter.isalnum() or letter == "_"


def is_one_letter(node: Node) -> bool:
    """Whether it matches exactly one letter."""
    return node[0] in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)


def fits(node: Node, letter: str, flags: int) -> bool:
    """Whether a node of one letter takes this letter."""
    kind, value = node
    if kind is op.ANY:
        return letter != "\n" or bool(flags & re.DOTALL)
    cases = {letter, letter.lower(), letter.upper()} if flags & re.IGNORECASE else {letter}
    if kind is op.LITERAL:
        return any(ord(one) == value for one in cases if len(one) == 1)
    if kind is op.NOT_LITERAL:
        return bool(ord(letter) != value)
    is_not = value[0][0] is op.NEGATE
    return any(_in(item, one) for item in value for one in cases if len(one) == 1) is not is_not


def _in(item: Node, letter: str) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return bool(ord(letter) == value)
    if kind is op.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    if kind is op.CATEGORY:
        digit, space, word = letter.isdecimal(), letter.isspace(), is_word(letter)
        kinds = {
            op.CATEGORY_DIGIT: digit,
            op.CATEGORY_NOT_DIGIT: not digit,
            op.CATEGORY_SPACE: space,
            op.CATEGORY_NOT_SPACE: not space,
            op.CATEGORY_WORD: word,
            op.CATEGORY_NOT_WORD: not word,
        }
        return bool(kinds[value])
    return False


def hostile_texts(pattern: "re.Pattern[str] | re.Pattern[bytes]", letters: int) -> Iterator[str]:
    """Texts made to cost most: what leads to each repeat, then much that the repeat takes, then what nothing takes."""
    for letter in LETTERS:
        yield letter * letters
    for before, bodies in set(_repeats(list(parse(pattern)), "", pattern.flags)):
        for body in bodies:
            for after in ("", "\0", "\n!", "!"):
                yield before + body * (letters // max(1, len(body))) + after
                yield (before + body) * (letters // max(1, len(before + body))) + after


def _repeats(nodes: list[Node], before: str, flags: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    for kind, value in nodes:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and value[1] > 1:
            yield before, tuple(dict.fromkeys(_bodies(list(value[2]), flags)))
            yield from _repeats(list(value[2]), before, flags)
        for inner in _inside(kind, value):
            yield from _repeats(inner, before, flags)
        before += _example([(kind, value)], flags)


def _inside(kind: object, value: Any) -> Iterator[list[Node]]:
    if kind is op.BRANCH:
        yield from (list(one) for one in value[1])
    elif kind is op.SUBPATTERN:
        yield list(value[3])


def _bodies(body: list[Node], flags: int) -> Iterator[str]:
    if len(body) == 1 and is_one_letter(body[0]):
        yield from [letter for letter in LETTERS if fits(body[0], letter, flags)][:8]
    yield _example(body, flags)
    for kind, value in body:
        for inner in _inside(kind, value):
            yield _example(inner, flags)


def _example(nodes: list[Node], flags: int) -> str:
    """A short text that the nodes take."""
    told = ""
    for kind, value in nodes:
        match kind:
            case op.LITERAL:
                told += chr(value)
            case op.IN | op.ANY | op.NOT_LITERAL:
                told += next((one for one in map(chr, range(32, 256)) if fits((kind, value), one, flags)), "")
            case op.BRANCH:
                told += _example(list(value[1][0]), flags)
            case op.SUBPATTERN:
                told += _example(list(value[3]), flags)
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                told += _example(list(value[2]), flags) * max(value[0], min(1, value[1]))
    return told
