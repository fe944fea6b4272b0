"""L1: no regular expression takes more than linear work, whatever text a node, a job or a person sends."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import nodeheal
from tests.regex_work import Matcher, TooMuchWork, hostile_texts

# A bounded repeat that is searched for costs up to its bound for each letter. Quadratic work costs half the text.
LETTERS = 300
STEPS_PER_LETTER = 130
DEPTH = 4
FUNCTIONS = {"compile", "search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split"}
ANCHORED = {"match", "fullmatch"}
_CALLS = re.compile(rf"\bre\s*\.\s*(?:{'|'.join(sorted(FUNCTIONS - {'compile'}))})\b")
# Held by `fullmatch` in a function that gets them (`_risen`, `check_ranks`), or by `match` in a loop.
HANDED_ON = {"_FAULTS", "_THROTTLED", "_UNCORRECTED", "_ZERO"}

Pattern = re.Pattern[str] | re.Pattern[bytes]


def is_linear(pattern: Pattern, *, anchored: bool) -> bool:
    for text in hostile_texts(pattern, LETTERS):
        matcher = Matcher(pattern, text, STEPS_PER_LETTER * LETTERS)
        try:
            if anchored:
                matcher.match(whole=True)
            else:
                matcher.search()
        except TooMuchWork:
            return False
    return True


def compiled() -> Iterator[tuple[bool, Pattern]]:
    """Each pattern that a module holds, and whether it is only ever held against the beginning of a text."""
    for module in pkgutil.walk_packages(nodeheal.__path__, "nodeheal."):
        if not module.name.endswith("__main__"):
            held = importlib.import_module(module.name)
            text = Path(str(held.__file__)).read_text("utf-8")
            for name, value in vars(held).items():
                yield from ((only_anchored(name, text), pattern) for pattern in within(value, DEPTH))


def within(value: object, depth: int) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, Mapping):
        yield from (found for item in (*value.keys(), *value.values()) for found in within(item, depth - 1))
    elif depth and isinstance(value, tuple | list | set | frozenset):
        yield from (found for item in value for found in within(item, depth - 1))
    elif depth and is_dataclass(value) and not isinstance(value, type):
        yield from (found for field in fields(value) for found in within(getattr(value, field.name), depth - 1))


def written() -> Iterator[tuple[str, Pattern]]:
    """Each pattern that is written out in a call, under the name of the function that is called."""
    texts = (path.read_text("utf-8") for path in sorted(Path(nodeheal.__path__[0]).rglob("*.py")))
    for text in (text for text in texts if _CALLS.search(text)):  # most need no look at their tree
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in FUNCTIONS - {"compile"}
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                is_multiline = any("MULTILINE" in ast.unparse(one) for one in (*node.args, *node.keywords))
                yield node.func.attr, re.compile(node.args[0].value, re.MULTILINE if is_multiline else 0)


def only_anchored(name: str, text: str) -> bool:
    """Whether a module's text calls a pattern's `match` or `fullmatch`, and nothing else of it."""
    used = set(re.findall(rf"\b{re.escape(name)}\.(\w+)\b", text))
    return name in HANDED_ON or (bool(used) and used <= ANCHORED)


def patterns() -> list[tuple[Pattern, bool]]:
    found = {(pattern, anchored) for anchored, pattern in compiled()}
    found |= {(pattern, function in ANCHORED) for function, pattern in written()}
    # Searched is the harder case: where a pattern is used in both ways, it is enough.
    return sorted(
        ((one, anchored) for one, anchored in found if not anchored or (one, False) not in found),
        key=lambda item: (str(item[0].pattern), item[1]),
    )


@pytest.mark.parametrize(
    ("pattern", "anchored"), patterns(), ids=lambda value: repr(getattr(value, "pattern", value))[:60]
)
def test_a_pattern_takes_linear_work(pattern: Pattern, anchored: bool) -> None:
    """L1: 562 bytes of `nvidia-smi` took 17 s of processor, 40,000 empty lines 1.3 s."""
    assert is_linear(pattern, anchored=anchored)


@pytest.mark.parametrize(
    ("pattern", "anchored"),
    [
        (r"[+|](?:-{10,200}\+?){1,4}[+|]?\s*|\+-{10,200}\+\s*", True),
        (r"(?m)^\s*provider: ", False),
        (r"(a+)+b", True),
        (r"\s+$", False),
        (r".*.*x", True),
        (r"(?:a|a)*b", True),
    ],
)
def test_a_slow_pattern_is_found(pattern: str, anchored: bool) -> None:
    assert not is_linear(re.compile(pattern), anchored=anchored)


@pytest.mark.parametrize(
    "pattern", [r"a+b", r"(?P<a>\d{1,4})-x", r"[+|](?:-+\+?){1,4}y?", r"(?i)gpu.*lost", r"(?<=\])\("]
)
def test_the_matcher_agrees_with_re(pattern: str) -> None:
    one = re.compile(pattern)
    for text in ["", "aab", "12-x", "+--+y", "GPU is lost", "](", *hostile_texts(one, 8)]:
        steps = 100_000
        assert Matcher(one, text, steps).search() is bool(one.search(text)), text
        assert Matcher(one, text, steps).match() is bool(one.match(text)), text
        assert Matcher(one, text, steps).match(whole=True) is bool(one.fullmatch(text)), text
