"""The guards that nobody misses, each with the reason why that is no harm: harmless.csv."""

import ast
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.sites import Site, find_sites

LISTED = Path(__file__).with_name("harmless.csv")
FIELDS = ("where", "expression", "becomes", "nth", "why")


@dataclass(frozen=True)
class Row:
    """A guard that may go unnoticed, and why."""

    where: str
    expression: str
    becomes: str
    nth: str
    why: str

    @property
    def key(self) -> str:
        """As its site has it."""
        return f"{self.where}: {self.expression} -> {self.becomes} #{self.nth}"


def read_rows(path: Path = LISTED) -> list[Row]:
    """Raises ValueError for one without a reason, and for one that stands there twice."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [Row(**line) for line in csv.DictReader(lines)]
    for row in rows:
        if not row.why.strip():
            raise ValueError(f"{row.key}: no reason")
    keys = [row.key for row in rows]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice}: listed twice")
    return rows


def all_sites(sources: Mapping[str, Path]) -> list[Site]:
    """Of these modules, which need not be imported for it."""
    return [
        site
        for module, path in sources.items()
        for site, _ in find_sites(module, ast.parse(path.read_text("utf-8")), path)
    ]


def complaints(rows: Sequence[Row], sites: Sequence[Site], results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong with the list: what stands there no more, and what is noticed by now."""
    known = {site.key for site in sites}
    told = [f"{row.key}: stands there no more; say what it is now" for row in rows if row.key not in known]
    for row in rows:
        found = results.get(row.key, {})
        if found.get("by"):
            told.append(f"{row.key}: is noticed by now, by {found['by']}; take it out of harmless.csv")
    return told
