"""What each fault means: rows of catalog.csv, the one place where vendors' disagreements are settled.

Standard library only: the agent may read it too. A fault that has no row is unknown, and an unknown fault goes to a
human, never to a reboot.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from nodeheal.contract.vocabulary import Action, Family


@dataclass(frozen=True)
class CatalogRow:
    """One fault: what it is called, what to do about it, and why."""

    family: Family
    code: str
    name: str
    action: Action
    why: str
    source: str


def parse_catalog(text: str) -> dict[tuple[str, str], CatalogRow]:
    """Rows by (family, code). Raises ValueError naming the line that is wrong."""
    rows: dict[tuple[str, str], CatalogRow] = {}
    reader = csv.DictReader(text.splitlines(), strict=True)
    for number, fields in enumerate(reader, start=2):
        try:
            family, action = Family(fields.pop("family")), Action(fields.pop("action"))
            row = CatalogRow(family=family, action=action, **fields)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"catalog line {number}: {error}") from error
        if not row.why or not row.name or (row.family.value, row.code) in rows:
            raise ValueError(f"catalog line {number}: {row.family}/{row.code} is empty or stands twice")
        rows[row.family.value, row.code] = row
    return rows


@cache
def catalog() -> dict[tuple[str, str], CatalogRow]:
    """The catalog that ships with the code."""
    return parse_catalog(resources.files("nodeheal.domain").joinpath("catalog.csv").read_text("utf-8"))


def find(family: Family, code: str) -> CatalogRow | None:
    """The row of a fault, or None for a fault that nobody has described."""
    return catalog().get((family.value, code))
