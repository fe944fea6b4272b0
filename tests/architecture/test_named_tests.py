"""A page that says that something holds names the test that holds it: the test must be there."""

import re
from collections.abc import Iterator

import pytest

from stacks.settings import REPOSITORY
from tests.simulation.cases import CASES
from tests.support.named_tests import names_in

PAGES = ("README.md", *sorted(str(page.relative_to(REPOSITORY)) for page in (REPOSITORY / "docs").rglob("*.md")))
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = _NAMED.findall((REPOSITORY / page).read_text("utf-8"))

    assert [f"{path}::{name}" for path, name in named if (name or "") not in names_in(path) and name] == []
    assert [path for path, name in named if not name and not (REPOSITORY / path).exists()] == []


def test_the_page_of_the_simulation_names_every_invariant_and_no_other() -> None:
    table = (REPOSITORY / "docs" / "simulation.md").read_text("utf-8").split("## What must hold")[1].split("\n## ")[0]
    named = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|")))

    assert sorted(named) == sorted(CASES)  # held to invariants.ALL by tests/simulation/test_invariants.py


def tables(page: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Every table of a page: the heading above it, and its rows by the names of the columns."""
    heading = ""
    head: list[str] = []
    rows: list[dict[str, str]] = []
    for line in [*(REPOSITORY / page).read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not head:
                head = cells
            elif not set(line) <= set("|-: "):
                rows.append(dict(zip(head, cells, strict=True)))
            continue
        if head:
            yield heading, rows
            head, rows = [], []
        heading = line.lstrip("# ") if line.startswith("#") else heading


FIDELITY = list(tables("docs/fidelity.md"))


@pytest.mark.parametrize(("heading", "rows"), FIDELITY, ids=[heading for heading, _ in FIDELITY])
def test_every_row_about_aws_names_its_source_or_says_that_there_is_none(
    heading: str, rows: list[dict[str, str]]
) -> None:
    assert rows
    assert [row for row in rows if len(row["source"]) < len("none needed")] == []


@pytest.mark.parametrize(
    ("heading", "rows"),
    [(heading, rows) for heading, rows in FIDELITY if "held by" in rows[0]],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_every_row_that_must_hold_names_its_test(heading: str, rows: list[dict[str, str]]) -> None:
    assert [row for row in rows if not _NAMED.search(row["held by"])] == []


def test_the_tables_of_what_must_hold_are_all_there() -> None:
    held = {heading: len(rows) for heading, rows in FIDELITY if "held by" in rows[0]}

    assert set(held) == {
        "What the sandbox is held against",
        "What DCGM's errors are read from",
        "As in AWS",
        "What we rely on in AWS",
        "CloudFormation",
        "The SSM agent",
        "Kubernetes",
        "HyperPod's labels",
    }
    assert sum(held.values()) > 80


def test_the_threat_model_names_tests_for_every_bound() -> None:
    text = (REPOSITORY / "docs" / "security.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")]
        for line in text.split("## Attackers")[1].split("\n## ")[0].splitlines()
        if line.startswith("|")
    ][2:]
    bounds = [cells for cells in rows if cells[2].startswith("not:")]

    assert len(rows) > 20
    assert len(bounds) >= 8
    assert [cells[2] for cells in bounds if not _NAMED.search(cells[4])] == []
    assert sum(bool(_NAMED.search(cells[4])) for cells in rows) > 18


def test_every_behaviour_that_we_rely_on_says_whether_an_account_has_shown_it() -> None:
    [rows] = [rows for heading, rows in FIDELITY if heading == "What we rely on in AWS"]

    assert {row["seen"] for row in rows} == {"no"}  # a person who sees one on an account writes when and where
