"""A page that says that something holds names the test that holds it: the test must be there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from stacks.settings import REPOSITORY
from tests.simulation.cases import CASES

PAGES = ("README.md", *sorted(str(page.relative_to(REPOSITORY)) for page in (REPOSITORY / "docs").rglob("*.md")))
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of a module's tests; empty where there is no such module."""
    file = REPOSITORY / path
    if not file.is_file():
        return frozenset()
    return frozenset(each.name for each in ast.parse(file.read_text("utf-8")).body if isinstance(each, ast.FunctionDef))


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = _NAMED.findall((REPOSITORY / page).read_text("utf-8"))

    assert [f"{path}::{name}" for path, name in named if (name or "") not in names_in(path) and name] == []
    assert [path for path, name in named if not name and not (REPOSITORY / path).exists()] == []


def test_the_page_of_the_simulation_names_every_invariant_and_no_other() -> None:
    table = (REPOSITORY / "docs" / "simulation.md").read_text("utf-8").split("## What must hold")[1].split("\n## ")[0]
    named = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|")))

    assert sorted(named) == sorted(CASES)  # held to invariants.ALL by tests/simulation/test_invariants.py


def test_what_is_as_in_aws_names_a_module_of_the_embedded_cloud() -> None:
    table = (REPOSITORY / "docs" / "fidelity.md").read_text("utf-8").split("## As in AWS")[1].split("\n## ")[0]
    shown = [line.split("|")[2].strip() for line in table.splitlines() if line.startswith("|")][2:]
    modules = [Path(cell.strip("`")).name for cell in shown if cell != "the same"]

    assert len(shown) > 15
    assert [name for name in modules if not (REPOSITORY / "tests" / "emulated" / name).is_file()] == []


def test_the_threat_model_names_tests_for_every_cannot() -> None:
    text = (REPOSITORY / "docs" / "security.md").read_text("utf-8")
    rows = [
        line.split("|") for line in text.split("## Threats")[1].split("\n## ")[0].splitlines() if line.startswith("|")
    ]
    threats = [cells for cells in rows[2:] if cells[3].strip()]

    assert len(threats) > 15
    assert [cells[3] for cells in threats if not _NAMED.search(cells[4])] == []


def test_every_behaviour_of_aws_that_we_rely_on_has_its_source_its_test_and_says_whether_it_was_seen() -> None:
    text = (REPOSITORY / "docs" / "fidelity.md").read_text("utf-8")
    table = text.split("## What we rely on in AWS")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("|")][2:]

    assert len(rows) > 20
    assert [cells[1] for cells in rows if not (cells[2] and _NAMED.search(cells[3]))] == []
    assert {cells[4] for cells in rows} == {"no"}  # whoever has seen one on a real account writes when, and where
