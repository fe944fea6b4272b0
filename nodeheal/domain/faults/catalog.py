"""The fault catalog: rows of catalog.csv, the one place where vendors' disagreements are settled.

Standard library only, because the agent reads it too. A fault without a row is unknown, and an unknown fault goes to a
human, never to a reboot.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from nodeheal.contract.names import OPERATOR_REQUEST, ROUTINE_CHECKS
from nodeheal.contract.vocabulary import Action, Family, NextStepCondition, Scope, Verdict

_FILE = Path(__file__).with_name("catalog.csv")
_Known = TypeVar("_Known")
# The NVSwitch driver itself says how grave an SXID is, and its rows under this code say what follows from that.
ANY_CODE = "any"
_STATES_ITS_VERDICT = {Family.sxid: {"fatal": True, "nonfatal": False}}
# Products of one generation share their codes. One that stands nowhere here is of none that the sources tell apart.
_GENERATIONS = {
    "A100": ("A100", "A800", "A30"),
    "H100": ("H100", "H200", "H800", "H20", "GH200"),
    "B100": ("B100", "B200", "B300"),
    "GB200": ("GB200", "GB300"),
}


@dataclass(frozen=True)
class CatalogRow:
    """One fault: its meaning, its ladder, and the reason."""

    family: Family
    code: str
    subcode: str  # empty: the code whatever its sub-code
    name: str  # a short title
    meaning: str  # one sentence
    scope: Scope
    verdict: Verdict
    ladder: tuple[Action, ...]
    next_rung: NextStepCondition
    keep: tuple[str, ...]  # the evidence worth keeping
    products: tuple[str, ...]  # empty: all
    drivers: str  # empty: all
    why: str  # one sentence, always where sources disagree
    source: str

    @property
    def action(self) -> Action:
        """The first of the ladder."""
        return self.ladder[0]

    @property
    def key(self) -> str:
        """The key that operators use: xid/79, xid/145/RLW_REMAP/0x00000004."""
        return "/".join(part for part in (self.family.value, self.code, self.subcode) if part)

    def applies_to(self, product: str | None) -> bool:
        """Tells whether the sources know this code on the product (`H100`, `NVIDIA H100 80GB HBM3`).

        Unknown means yes.
        """
        generation = generation_of(product)
        return not self.products or generation is None or generation in self.products


Rows = dict[tuple[str, str, str], CatalogRow]


def parse_catalog(text: str) -> Rows:
    """Returns the rows by (family, code, subcode). Raises ValueError that names the wrong line."""
    rows: Rows = {}
    reader = csv.DictReader(text.splitlines(), strict=True)
    for number, fields in enumerate(reader, start=2):
        try:
            row = _row(fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"catalog line {number}: {error}") from error
        key = (row.family.value, row.code, row.subcode)
        if key in rows:
            raise ValueError(f"catalog line {number}: {row.key} stands twice")
        rows[key] = row
    return rows


def _row(fields: dict[str, str]) -> CatalogRow:
    empty = [name for name in ("code", "name", "meaning", "why", "source") if not fields[name].strip()]
    if empty:
        raise ValueError(f"{empty[0]} is empty")
    ladder = tuple(Action(word) for word in fields["ladder"].split())
    if not ladder:
        raise ValueError("ladder is empty")
    return CatalogRow(
        family=Family(fields["family"]),
        code=fields["code"],
        subcode=fields["subcode"],
        name=fields["name"],
        meaning=fields["meaning"],
        scope=Scope(fields["scope"]),
        verdict=Verdict(fields["verdict"]),
        ladder=ladder,
        next_rung=NextStepCondition(fields["next_rung"]),
        keep=tuple(fields["keep"].split()),
        products=tuple(fields["products"].split()),
        drivers=fields["drivers"],
        why=fields["why"],
        source=fields["source"],
    )


def generation_of(product: str | None) -> str | None:
    """Returns the generation as the catalog's products spell it. None: the catalog does not distinguish the product."""
    words = (product or "").upper().replace("-", " ").split()
    for generation, products in _GENERATIONS.items():
        if any(word in products for word in words):
            return generation
    return None


@cache
def catalog() -> Rows:
    """Returns the catalog that ships with the code."""
    return parse_catalog(_FILE.read_text("utf-8"))


def title(family: Family, code: str, subcode: str | None = None) -> str:
    """Returns the name of a fault. It contains the sub-code where the row is not the sub-code's own."""
    row = find(family, code, subcode)
    if row is not None and code in {*ROUTINE_CHECKS, OPERATOR_REQUEST}:
        return row.name
    is_told = not subcode or (row is not None and row.subcode == subcode)
    spelled = f"{family.value.upper()} {code if is_told else f'{code}/{subcode}'}"
    return spelled + (f" ({row.name})" if row else "")


def find(family: Family, code: str, subcode: str | None = None) -> CatalogRow | None:
    """Returns the row of a fault, or None for an unknown fault.

    A sub-code without a row falls back to its unit (the part before the last '/'), then to the code. Where the line
    itself states the severity, and the row differs or is missing, the line wins.
    """
    return _found(catalog(), lambda row: row.verdict, family, code, subcode)


def verdict(family: Family, code: str, subcode: str | None = None) -> Verdict | None:
    """Returns the severity of the row that `find` would return. It keeps nothing else of the rows in memory."""
    return _found(verdicts(), lambda graveness: graveness, family, code, subcode)


def _found(
    known: Mapping[tuple[str, str, str], _Known],
    graveness: Callable[[_Known], Verdict],
    family: Family,
    code: str,
    subcode: str | None,
) -> _Known | None:
    row = next((known[key] for key in _keys(family, code, subcode) if key in known), None)
    is_fatal = _STATES_ITS_VERDICT.get(family, {}).get(subcode or "")
    if is_fatal is None or (row is not None and is_fatal == (graveness(row) is Verdict.FAILED)):
        return row
    return known[family.value, ANY_CODE, subcode or ""]


def _keys(family: Family, code: str, subcode: str | None) -> Iterator[tuple[str, str, str]]:
    rest = subcode or ""
    while rest:
        yield (family.value, code, rest)
        rest = rest.rpartition("/")[0]
    yield (family.value, code, "")


@cache
def verdicts() -> dict[tuple[str, str, str], Verdict]:
    """Returns the severities by (family, code, subcode). The file is read once."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        columns = next(rows)
        family, code, subcode, graveness = (columns.index(name) for name in ("family", "code", "subcode", "verdict"))
        return {(Family(row[family]).value, row[code], row[subcode]): Verdict(row[graveness]) for row in rows}
