"""Generates the tables of docs/fleet.md from its numbers alone."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.fleet.plan import AT_AWS, BY_HAND, GPUS_A_NODE, KEEPERS, NODEHEAL, POLL, RATES, WRITE_SECONDS, mtbf_seconds
from nodeheal.domain.jobs.checkpoint_advice import daly_seconds, young_seconds

BEGIN, END = "<!-- written by: make fleet -->", "<!-- /written -->"
Row = dict[str, Any]


def into_page(text: str, page: Path, begin: str = BEGIN) -> None:
    """Replace what stands between a marker of the page and the next END; without a page, write one with it alone."""
    before, marker, rest = (page.read_text("utf-8") if page.exists() else f"{begin}{END}\n").partition(begin)
    if not marker:
        raise ValueError(f"{page} has no {begin}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{END}{rest.partition(END)[2]}", "utf-8")


def tables(report: dict[str, Any]) -> str:
    """Return all tables, with their sources."""
    parts = [
        *(_of_fleets(report["fleets"], rate) for rate in RATES if any(one["rate"] == rate for one in report["fleets"])),
        _of_losses(report["fleets"]),
        _of_knob(report["interval"], "checkpoint_seconds", "a checkpoint every", _minutes, _optimum()),
        _of_knob(report["spares"], "spares", "free nodes beside a job of 120", str, "128 nodes have room for 8."),
        _of_budget(report["budget"]),
        _of_cloud(report["cloud"]),
        _of_others(report["others"]),
        f"Written from simulation sources `{report['sources']}`.",
    ]
    return "\n\n".join(parts)


def percent(found: dict[str, float | None]) -> str:
    """Format 98.12 ± 0.10; without a margin for a single run."""
    mean, margin = float(found["mean"] or 0.0), found["margin"]
    return f"{100 * mean:.2f}" + ("" if margin is None else f" ± {100 * margin:.2f}")


def table(head: Iterable[str], rows: Iterable[Iterable[str]], texts: int) -> str:
    """Return a table whose first columns are texts, and whose others are numbers."""
    cells = list(head)
    rule = ["---"] * texts + ["---:"] * (len(cells) - texts)
    lines = ["| " + " | ".join(row) + " |" for row in [cells, *map(list, rows)]]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


def _of_fleets(cases: list[Row], rate: str) -> str:
    rows = [
        [
            f"{case['nodes'] * GPUS_A_NODE:,}",
            case["mix"],
            case["keeper"],
            percent(case["ettr"]),
            percent(case["goodput"]),
            f"{case['seeds']} × {case['days']:g}",
            f"{case['faults']:,}",
            f"{case['pages']:,}",
        ]
        for case in cases
        if case["rate"] == rate
    ]
    head = ("GPUs", "jobs", "kept by", "ETTR, %", "goodput, %", "seeds × days", "faults", "pages")
    told = f"**{rate}: {1_000 * RATES[rate]:.2f} faults in 1,000 node-days**"
    return f"{told}\n\n{right(table(head, rows, 3))}"


def right(written: str) -> str:
    """Align the first column of a table as numbers."""
    return written.replace("\n|---|", "\n|---:|", 1)


def _of_losses(cases: list[Row]) -> str:
    causes = ("recomputed", "writing", "waiting", "down")
    rows = [
        [case["mix"], case["keeper"], *(f"{100 * case['lost'][cause]:.2f}" for cause in causes)]
        for case in cases
        if case["rate"] == "RSC-1" and case["nodes"] == max(c["nodes"] for c in cases if c["nodes"] <= 2_048)
    ]
    head = ("jobs", "kept by", "computed again", "writing checkpoints", "in line", "down")
    return f"**What was lost on the third fleet at RSC-1's rate, % of all job time**\n\n{table(head, rows, 2)}"


def _of_knob(cases: list[Row], knob: str, told: str, spell: Any, note: str) -> str:
    values = list(dict.fromkeys(case[knob] for case in cases))
    rows = []
    for value in values:
        by = {case["keeper"]: case for case in cases if case[knob] == value}
        rows.append(
            [spell(value), *(percent(by[keeper]["ettr"]) for keeper in KEEPERS), percent(by[NODEHEAL]["goodput"])]
        )
    head = (told, *(f"ETTR, {keeper}" for keeper in KEEPERS), "goodput, nodeheal")
    return f"{right(table(head, rows, 1))}\n\n{note}"


def _optimum() -> str:
    between = mtbf_seconds(120, "RSC-1")
    daly, young = daly_seconds(WRITE_SECONDS, between), young_seconds(WRITE_SECONDS, between)
    return (
        f"Daly's optimum, from nodeheal's own advice (`nodeheal jobs show`), is {_minutes(daly)} (Young: "
        f"{_minutes(young)}), at {WRITE_SECONDS:.0f} s a write and {between / 3_600:.1f} h\nbetween two faults that "
        "end a job of 120 nodes."
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _of_budget(cases: list[Row]) -> str:
    rows = []
    for budget in dict.fromkeys(case["budget"] for case in cases):
        mine, at_aws = (
            next(c for c in cases if (c["budget"], c["keeper"]) == (budget, name)) for name in (NODEHEAL, AT_AWS)
        )
        share = f"{100 * budget / mine['nodes']:.1f}"
        rows.append(
            [
                str(budget),
                share,
                *(percent(c["ettr"]) for c in (mine, at_aws)),
                percent(mine["goodput"]),
                str(mine["pages"]),
            ]
        )
    head = ("budget, nodes of 128", "% of the pool", f"ETTR, {NODEHEAL}", f"ETTR, {AT_AWS}", "goodput", "pages")
    return right(table(head, rows, 1))


def _of_cloud(cases: list[Row]) -> str:
    rows = [[c["mix"], c["keeper"], percent(c["ettr"]), percent(c["goodput"]), str(c["pages"])] for c in cases]
    return table(("jobs", "cloud", "ETTR", "goodput", "pages"), rows, 2)


def _of_others(cases: list[Row]) -> str:
    rows = []
    for case in cases:
        how = {
            POLL: f"looks every {case['poll_seconds']:g} s, waits {case['wait_seconds'] / 60:g} min for a node",
            BY_HAND: f"a human comes after {case['page_seconds'] / 60:g} min (median)",
        }[case["keeper"]]
        rows.append([case["keeper"], how, percent(case["ettr"]), percent(case["goodput"])])
    return table(("kept by", "how", "ETTR", "goodput"), rows, 2)
