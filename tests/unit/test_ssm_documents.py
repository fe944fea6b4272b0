"""What all SSM documents have in common: SSM takes their patterns, and a shell takes what the patterns let through."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]  # sre_parse, as it is called since 3.11
from typing import Any

import pytest

DOCUMENTS = sorted((Path(__file__).parents[2] / "packaging" / "ssm").glob("*.json"))
MOST_REPEATS = 1000  # of SSM's regular expressions, nested ones multiplied
# What would end a quoted word of a shell, or begin something in one.
DANGEROUS = tuple("'\n\0;|&$`\\\"<>(){} ")


def parameters() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path in DOCUMENTS:
        for name, parameter in json.loads(path.read_text())["parameters"].items():
            yield path.stem, name, parameter


PATTERNS = [(stem, name, one["allowedPattern"]) for stem, name, one in parameters() if "allowedPattern" in one]
IDS = [f"{stem}-{name}" for stem, name, _ in PATTERNS]


def most_repeats(parsed: Any) -> int:
    """The highest count of a repetition, with those around it."""
    most = 1
    for kind, value in parsed:
        if str(kind) in ("MAX_REPEAT", "MIN_REPEAT"):
            least, highest, inner = value
            times = least if highest == _parser.MAXREPEAT else highest
            most = max(most, int(times) * most_repeats(inner))
        elif str(kind) == "SUBPATTERN":
            most = max(most, most_repeats(value[-1]))
        elif str(kind) == "BRANCH":
            most = max(most, *(most_repeats(one) for one in value[1]))
    return most


@pytest.mark.parametrize(("stem", "name", "pattern"), PATTERNS, ids=IDS)
def test_a_pattern_is_one_that_ssm_takes(stem: str, name: str, pattern: str) -> None:
    assert most_repeats(_parser.parse(pattern)) <= MOST_REPEATS
    assert not re.search(r"\(\?[=!<]|\\[1-9]", pattern)  # it looks neither ahead nor back


@pytest.mark.parametrize(("stem", "name", "pattern"), PATTERNS, ids=IDS)
def test_a_pattern_lets_nothing_through_that_a_shell_would_obey(stem: str, name: str, pattern: str) -> None:
    assert pattern.startswith("^")
    assert pattern.endswith("$")
    for character in DANGEROUS:
        for text in (character, f"a{character}", f"1{character}1", f"{character}a", f"a,{character}b"):
            assert not re.fullmatch(pattern, text), (stem, name, text)


def script(stem: str) -> str:
    """Everything that the document runs."""
    [path] = [path for path in DOCUMENTS if path.stem == stem]
    return "\n".join(
        line for step in json.loads(path.read_text())["mainSteps"] for line in step["inputs"]["runCommand"]
    )


@pytest.mark.parametrize(("stem", "name", "pattern"), PATTERNS, ids=IDS)
def test_a_value_is_never_taken_for_an_option(stem: str, name: str, pattern: str) -> None:
    """It begins with no '-', or it stands behind '=' or alone in its line, where no program takes it for a word."""
    spelled = re.escape(f"{{{{ {name} }}}}")
    uses = re.findall(rf"(?m)^.*{spelled}.*$", script(stem))
    is_a_word = any(not re.search(rf"='?{spelled}|^{spelled}$", line) for line in uses)

    assert uses
    assert not is_a_word or not any(re.fullmatch(pattern, text) for text in ("-", "-x", "--", "--help", "-1", "-a-b"))


@pytest.mark.parametrize("stem", [path.stem for path in DOCUMENTS])
def test_the_value_of_an_option_stands_behind_its_sign(stem: str) -> None:
    assert not re.search(r"--[a-z-]+ +['\"]?\{\{", script(stem))


# What a value may begin with beside letters and digits: Base64, a path, and a number below zero.
MAY_BEGIN_WITH = {"Accused": "-_", "AfterBoot": "-_", "Line": "-_", "Upload": "-_", "Config": "+/="}
MAY_BEGIN_WITH |= {"Directory": "/", "Value": "-"}


@pytest.mark.parametrize(("stem", "name", "pattern"), PATTERNS, ids=IDS)
def test_a_value_begins_with_a_letter_or_a_digit(stem: str, name: str, pattern: str) -> None:
    odd = {sign for sign in map(chr, range(33, 127)) if not sign.isalnum()}

    found = {sign for sign in odd for rest in ("", "1", "a", "12") if re.fullmatch(pattern, sign + rest)}

    assert found == set(MAY_BEGIN_WITH.get(name, ""))


@pytest.mark.parametrize(("stem", "name", "parameter"), list(parameters()), ids=lambda one: str(one)[:40])
def test_a_parameter_takes_no_free_text(stem: str, name: str, parameter: dict[str, Any]) -> None:
    """The SSM agent checks patterns again on the node. Only the service checks lists of values."""
    assert "allowedPattern" in parameter
    for value in [*parameter.get("allowedValues", ()), *([parameter["default"]] if "default" in parameter else [])]:
        assert re.fullmatch(parameter["allowedPattern"], value)


@pytest.mark.parametrize(
    ("stem", "name", "values", "pattern"),
    [
        (stem, name, one["allowedValues"], one["allowedPattern"])
        for stem, name, one in parameters()
        if "allowedValues" in one
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_pattern_beside_a_list_of_values_takes_these_and_no_others(
    stem: str, name: str, values: list[str], pattern: str
) -> None:
    texts = {first + second for first in ["", *values] for second in ["", *values]}
    texts |= {changed for value in values for changed in (value[:-1], value[1:], f"{value}x", f"x{value}")}

    assert {text for text in texts if re.fullmatch(pattern, text)} == set(values), (stem, name)


@pytest.mark.parametrize(("text", "is_taken"), [("no", True), ("9", True), ("42", True), ("on", False), ("o", False)])
def test_a_search_is_put_off_by_seconds_or_not_at_all(text: str, is_taken: bool) -> None:
    [pattern] = [one for stem, name, one in PATTERNS if (stem, name) == ("find-checkpoint", "SightAfter")]

    assert bool(re.fullmatch(pattern, text)) is is_taken


def test_the_longest_drill_fits_its_pattern() -> None:
    [pattern] = [one for stem, name, one in PATTERNS if (stem, name) == ("inject-fault", "Line")]

    assert re.fullmatch(pattern, "A" * 1068)  # 800 characters as Base64
    assert not re.fullmatch(pattern, "A" * 1201)
