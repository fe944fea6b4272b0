"""Tests import builders, never one another."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.settings import REPOSITORY

TESTS = REPOSITORY / "tests"
FILES = sorted(str(path.relative_to(REPOSITORY)) for path in TESTS.rglob("*.py"))
# It runs tests of these again, with a condition taken out of the code that they test.
RUNS_TESTS_OF_OTHERS = {"tests/twins/test_without_conditions.py"}
# Who uses the builders of another folder, and why these are not in support.
USES_ANOTHER_FOLDER = {
    ("tests/mutants", "tests/workflows"): "takes guards out of the stories of the state machines",
    ("tests/simulation", "tests/workflows"): "compares the places that its runs write to with those of the stories",
    ("tests/architecture", "tests/simulation"): "compares the names of its invariants with a page",
    ("tests/unit", "tests/workflows"): "takes the sizes of records from the bill of an incident",
}
# A test stands in the file of its module, whatever bug or sweep it came from.
HISTORIC_NAMES = ("among_others", "boundaries", "edges", "guards", "regressions")


def imports_of_tests(file: str) -> Iterator[str]:
    """The modules of `tests` that a file imports, by their dotted names."""
    for node in ast.walk(ast.parse((REPOSITORY / file).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("tests."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            assert node.module
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names if is_module(f"{node.module}.{name.name}"))


def is_module(name: str) -> bool:
    return (REPOSITORY / f"{name.replace('.', '/')}.py").is_file()


def folder_of(module: str) -> str:
    """The folder below `tests` in which a module lives; `tests` itself for one that stands there."""
    parts = Path(module.replace(".", "/")).parts
    return "/".join(parts[:2]) if len(parts) > 2 else "tests"


@pytest.mark.parametrize("file", FILES)
def test_no_file_imports_a_module_of_tests(file: str) -> None:
    modules = {name for name in imports_of_tests(file) if name.rpartition(".")[2].startswith("test_")}

    assert not modules or file in RUNS_TESTS_OF_OTHERS, modules


def test_builders_that_folders_share_are_in_support() -> None:
    pairs = {
        (folder_of(file.removesuffix(".py")), folder_of(name))
        for file in FILES
        for name in imports_of_tests(file)
        if is_module(name)
    }
    foreign = {(by, of) for by, of in pairs if of not in {by, "tests", "tests/support"} and by != "tests"}

    assert foreign == USES_ANOTHER_FOLDER.keys()


def test_a_file_is_named_after_what_it_tests_and_not_after_how_it_came_about() -> None:
    assert [file for file in FILES if Path(file).stem.endswith(HISTORIC_NAMES)] == []


def test_support_needs_no_other_folder() -> None:
    foreign = {
        (file, name)
        for file in FILES
        if file.startswith("tests/support/")
        for name in imports_of_tests(file)
        if folder_of(name) not in {"tests", "tests/support"}
    }

    assert foreign == set()
