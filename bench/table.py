"""Formats the results as one table: for a terminal, and as the marked part of docs/benchmarks.md."""

import csv
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeheal.simulation.latency import LATENCIES
from sandbox.legs import LEGS

FIGURES = Path(__file__).resolve().parent / "figures.csv"
BEGIN, END = "<!-- measured: make bench -->", "<!-- /measured -->"
# By the suffix of a figure's name. The longest match is its unit.
UNITS = {
    "_kib": "KiB",
    "_mib": "MiB",
    "_percent": "%",
    "_us": "µs",
    "_ms": "ms",
    "_s": "s",
    "_usd": "$",
    "_nodes": "nodes",
    "_per_second": "a second",
    "_per_cpu_second": "a second of processor time",
    "_missed": "",
    "_emails": "",
    "_transitions": "",
    "_start": "times",
    "pages_of_750": "",
}
MARKS = {"_p50_": "median", "_p90_": "p90", "_p99_": "p99", "_max_": "last"}


@dataclass(frozen=True)
class Row:
    """A figure in readable form."""

    what: str
    figure: str
    spread: str
    at_aws: str  # the value at AWS's latencies, as published or assumed; empty: not measured
    published: str
    source: str


def figures() -> list[dict[str, str]]:
    """Return the rows of figures.csv."""
    with FIGURES.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def unit_of(key: str) -> str:
    """Return the unit. Raises ValueError for a figure whose name does not end in its unit."""
    fitting = [ending for ending in UNITS if key.endswith(ending)]
    if not fitting:
        raise ValueError(f"{key}: a figure's name ends in its unit, one of {', '.join(UNITS)}")
    return UNITS[max(fitting, key=len)]


def rows_of(measured: Mapping[str, Any]) -> Iterator[Row]:
    """Return the measured figures, in the order of figures.csv."""
    for figure in figures():
        section, _, name = figure["key"].partition(".")
        if name not in measured.get(section, {}):
            continue
        mark = next((word for part, word in MARKS.items() if part in f"{name}_"), "")
        least, most = measured["spread"][section][name]
        runs = measured["runs"][section]
        spread = f"{_number(least)} to {_number(most)}, {runs} runs" if runs > 1 else "one run"
        told = f"{figure['what']}: {mark}" if mark else figure["what"]
        slower = measured.get(f"{section}_aws", {}).get(name)
        at_aws = _with_unit(slower, name) if slower is not None else ""
        mine = _with_unit(measured[section][name], name)
        yield Row(told, mine, spread, at_aws, figure["published"], figure["source"])


def _with_unit(value: float, name: str) -> str:
    unit = unit_of(name)
    return f"${_number(value)}" if unit == "$" else f"{_number(value)} {unit}".strip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 1_000 else f"{value:.6g}"


def legs_of(measured: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Return the seconds of a recovery by leg: a head, and a row for each. Nothing where none was measured."""
    kinds = [
        (section, functions)
        for section in ("recovery", "recovery_aws")
        for functions in ("cold", "warm")
        if f"{functions}_detect_s" in measured.get(section, {})
    ]
    if not kinds:
        return
    settings = {"recovery": "none", "recovery_aws": "aws"}
    yield ("leg", *(f"{kind}, {settings[section]}" for section, kind in kinds), "floor, none", "floor, aws", "")
    for leg, floor in LEGS.items():
        cells = [_leg_cell(measured, section, f"{kind}_{leg}_s") for section, kind in kinds]
        if any(cells):
            least = [f"{floor.seconds(latency):.2f}" for latency in LATENCIES.values()]
            yield (leg, *cells, *least, floor.named)


def _leg_cell(measured: Mapping[str, Any], section: str, name: str) -> str:
    if name not in measured[section]:
        return ""
    least, most = measured["spread"][section][name]
    return f"{measured[section][name]:.2f} ({least:.2f} to {most:.2f})"


def as_text(measured: Mapping[str, Any]) -> str:
    """Format for a terminal."""
    rows = list(rows_of(measured))
    head = Row("", "median", "least to most", "--latency aws", "published elsewhere", "")
    columns = ("what", "figure", "spread", "at_aws")
    wide = [max(len(getattr(row, column)) for row in (head, *rows)) for column in columns]
    lines = [
        f"{row.what:<{wide[0]}}  {row.figure:>{wide[1]}}  {row.spread:<{wide[2]}}  {row.at_aws:>{wide[3]}}  "
        f"{row.published}".rstrip()
        for row in (head, *rows)
    ]
    legs = list(legs_of(measured))
    widths = [max(map(len, column)) for column in zip(*legs, strict=True)]
    told = ["  ".join(f"{cell:<{wide}}" for cell, wide in zip(leg, widths, strict=True)).rstrip() for leg in legs]
    return "\n".join([*lines, "", *told, "", machine_of(measured)]) + "\n"


def as_markdown(measured: Mapping[str, Any]) -> str:
    """Format for the page."""
    head = [
        "| what | median | least to most | `--latency aws` | published elsewhere | source |",
        "|---|---:|---|---:|---|---|",
    ]
    body = [
        f"| {row.what} | {row.figure} | {row.spread} | {row.at_aws} | {row.published} | {row.source} |"
        for row in rows_of(measured)
    ]
    legs = [f"| {' | '.join(leg)} |" for leg in legs_of(measured)]
    if legs:
        told = (
            "Seconds of a recovery by leg, median with least and most; [what the words mean](#the-legs-of-a-recovery):"
        )
        legs = ["", told, "", legs[0], f"|---|{'---:|' * (legs[0].count('|') - 3)}---|", *legs[1:]]
    return "\n".join([*head, *body, *legs, "", machine_of(measured)])


def machine_of(measured: Mapping[str, Any]) -> str:
    """Return where and when it was measured, in a sentence for each machine and day."""
    seen: dict[str, list[str]] = {}
    for section, where in measured["machine"].items():
        told = f"{where['day']}, {where['cores']} cores ({where['processor']})"
        told += f", Python {where['python']}, Linux {where['kernel']}"
        seen.setdefault(told, []).append(section)
    sentences = (f"Measured on {told}: {', '.join(sections)}." for told, sections in seen.items())
    return "\n".join(textwrap.fill(sentence, 120, break_on_hyphens=False) for sentence in sentences)


def with_table(page: str, measured: Mapping[str, Any]) -> str:
    """Return the page with its marked part replaced."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{as_markdown(measured)}\n\n{END}{rest.split(END)[1]}"
