"""The promise ledger, `tests/promises.csv`: one row for each promise, with the tests that hold it.

`stated_in` is a page; in the safety model it is `docs/safety.md#` and the bold words of the bullet. Pages that name
their own tests are not copied here: `test_named_tests.py` holds docs/security.md, docs/fidelity.md and
docs/simulation.md to tests that exist.
"""

import csv
import re
from collections import Counter

import pytest

from stacks.settings import REPOSITORY
from tests.support.named_tests import names_in

LEDGER = "tests/promises.csv"
# Runbooks whose only promise is a bullet of the safety model, which has a row.
IN_THE_SAFETY_MODEL = {"docs/runbooks/external-remediator.md"}
_POINTERS = 1  # the last bullet of the safety model only leads to pages that name their own tests


def rows_of_the_ledger() -> list[dict[str, str]]:
    with (REPOSITORY / LEDGER).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


ROWS = rows_of_the_ledger()


def is_a_test(path: str, name: str) -> bool:
    return name.startswith("test_") and name in names_in(path)


def bullets_of_the_safety_model() -> list[str]:
    text = (REPOSITORY / "docs" / "safety.md").read_text("utf-8")
    return [bullet for bullet in text.split("\n- ")[1:] if bullet.strip()]


def anchor(bullet: str) -> str:
    """The bold words at the beginning of a bullet as the fragment of an address; empty where it has none."""
    bold = re.match(r"\*\*(.+?)\*\*", bullet)
    return "-".join(re.findall(r"[a-z0-9]+", bold[1].lower())) if bold else ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["promise"])
def test_a_promise_names_its_page_and_a_test_that_exists(row: dict[str, str]) -> None:
    page = row["stated_in"].partition("#")[0]
    named = [name.split("::") for name in row["test"].split()]

    assert row["promise"].endswith(".")
    assert (REPOSITORY / page).is_file()
    assert named
    assert [each for each in named if len(each) != 2 or not is_a_test(*each)] == []


def test_no_promise_stands_twice_and_rows_are_sorted_by_page() -> None:
    assert [promise for promise, count in Counter(row["promise"] for row in ROWS).items() if count > 1] == []
    assert [row["stated_in"] for row in ROWS] == sorted(row["stated_in"] for row in ROWS)


def test_every_bullet_of_the_safety_model_has_a_row_and_every_anchor_a_bullet() -> None:
    bullets = bullets_of_the_safety_model()
    anchors = {anchor(bullet) for bullet in bullets if anchor(bullet)}
    in_ledger = {row["stated_in"].partition("#")[2] for row in ROWS if row["stated_in"].startswith("docs/safety.md")}

    assert len(bullets) - len(anchors) == _POINTERS
    assert in_ledger == anchors


def test_every_runbook_has_a_row_or_stands_beside_a_bullet_of_the_safety_model() -> None:
    runbooks = {f"docs/runbooks/{page.name}" for page in (REPOSITORY / "docs" / "runbooks").glob("*.md")}

    assert runbooks - {row["stated_in"] for row in ROWS} == IN_THE_SAFETY_MODEL


def test_every_decision_that_is_not_superseded_has_a_row() -> None:
    decisions = {
        str(page.relative_to(REPOSITORY))
        for page in (REPOSITORY / "docs" / "adr").glob("*.md")
        if not re.search(r"^(?:Status: )?superseded", page.read_text("utf-8"), re.IGNORECASE | re.MULTILINE)
    }

    assert decisions - {row["stated_in"] for row in ROWS} == set()
