"""Commands write JSON from views: `nodeheal/cli/say.py` dumps them, and no other module of the commands makes JSON."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeheal.api.views import JobListRow
from nodeheal.cli.cluster_views import SlurmJobRow, UnknownJobsRow
from stacks.settings import REPOSITORY

CLI = REPOSITORY / "nodeheal" / "cli"
WRITERS = {"say_json", "say_data"}
DUMPS = {"dumps", "dump", "safe_dump", "model_dump", "model_dump_json"}
# Who else makes JSON, YAML or the dictionary of a model, and why.
EXCEPTIONS = {
    "contexts.set_context": "the context before a change, to which what is given is added",
    "incidents._event_lines": "the events as they came, a line each: `nodeheal replay` and others read them",
    "kept_contexts.write": "the file of contexts",
    "policy._merged": "the policy document that is stored",
    "policy._value": "a setting within a sentence",
    "policy.edit": "the policy document that a person edits",
    "say._data_of": "the views",
    "say.policy_text": "the policy document out of what `policy show --json` printed",
    "say.say_data": "the views as YAML",
    "say.say_json": "the views as JSON",
}


def _calls(source: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the function at the module's top that it stands in."""
    for outer in ast.parse(source).body:
        for node in ast.walk(outer):
            if isinstance(node, ast.Call):
                yield getattr(outer, "name", ""), node


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_by_hand(call: ast.Call) -> bool:
    """Whether a dictionary, or a list of them, is written in the call that prints."""
    return any(isinstance(node, ast.Dict | ast.DictComp) for value in call.args for node in ast.walk(value))


def _files() -> list[Path]:
    return sorted(CLI.glob("*.py"))


def test_only_the_listed_functions_of_the_commands_make_json() -> None:
    found = {
        f"{file.stem}.{function}"
        for file in _files()
        for function, call in _calls(file.read_text("utf-8"))
        if _called(call) in DUMPS
    }

    assert found == set(EXCEPTIONS)


def test_no_command_prints_a_dictionary() -> None:
    found = [
        f"{file.name}:{call.lineno}"
        for file in _files()
        for _, call in _calls(file.read_text("utf-8"))
        if _called(call) in WRITERS and _is_by_hand(call)
    ]

    assert found == []


@pytest.mark.parametrize("text", ['say_json({"a": 1})', "say_data([{**row} for row in rows], form)"])
def test_a_dictionary_is_seen(text: str) -> None:
    assert [call for _, call in _calls(text) if _called(call) in WRITERS and _is_by_hand(call)]


@pytest.mark.parametrize("row", [SlurmJobRow, UnknownJobsRow])
def test_jobs_of_others_have_the_fields_of_our_own_first_and_in_their_order(
    row: type[SlurmJobRow | UnknownJobsRow],
) -> None:
    ours = list(JobListRow.model_fields)

    assert list(row.model_fields)[: len(ours)] == ours
