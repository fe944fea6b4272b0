"""`make fleet`: simulates the fleets of docs/fleet.md, and writes its tables, its plots and its numbers.

Finished runs are stored under build/fleet: an interrupted run continues from there.
"""

import argparse
import json
import sys
from pathlib import Path
from time import process_time

from bench.fleet.plan import Case, fleets, quick, sweeps
from bench.fleet.runs import KEPT, ROOT, measure, sources_digest

WRITTEN = ROOT / "docs"


def main(given: list[str] | None = None) -> int:
    """Run what is not stored yet, and write the report. Fails where an invariant was violated."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--seeds", type=int, help="seeds for each case, instead of the plan's number")
    parser.add_argument(
        "--quick", action="store_true", help="a small fleet for six days: for a first look, not a result"
    )
    parser.add_argument("--out", type=Path, help="where fleet.md and fleet/ are written; docs without --quick")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where finished runs are stored")
    asked = parser.parse_args(given)
    if asked.seeds is not None and asked.seeds < 1:
        parser.error("--seeds: at least 1")
    if asked.quick and asked.out is None:
        parser.error("--quick: give a folder with --out; docs/ keeps the full report")
    out = asked.out or WRITTEN
    report = make_report(asked.seeds, asked.quick, asked.kept)
    write(report, out)
    return tell(report, out)


def make_report(seeds: int | None, is_quick: bool, kept: Path) -> dict[str, object]:
    """Return all numbers of the report."""
    plan = {"fleets": list(fleets()), **sweeps()}
    if is_quick:
        plan = {part: quick(cases) for part, cases in plan.items()}
    parts = {part: measure(cases, seeds, _progress, kept) for part, cases in plan.items()}
    return {"sources": sources_digest(), **parts}


def write(report: dict[str, object], out: Path) -> None:
    """Write the numbers, the plots, and the tables between the markers of the page."""
    from bench.fleet.plots import draw
    from bench.fleet.tables import into_page, tables

    (out / "fleet").mkdir(parents=True, exist_ok=True)
    (out / "fleet" / "report.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    draw(report, out / "fleet")
    into_page(tables(report), out / "fleet.md")


def tell(report: dict[str, object], out: Path) -> int:
    """Print the progress, and each invariant that was violated."""
    broken = [
        (case, violation)
        for part, cases in report.items()
        if isinstance(cases, list)
        for case in cases
        for violation in case["violations"]
    ]
    for case, violation in broken:
        sys.stderr.write(f"{case['keeper']}, {case['nodes']} nodes, {case['mix']}: {violation}\n")
    sys.stderr.write(f"{out / 'fleet.md'}; {len(broken)} violations; {process_time():.0f} s of processor time\n")
    return bool(broken)


def _progress(case: Case, seed: int) -> None:
    told = f"{case.nodes} nodes, {case.rate}, {case.mix}, {case.keeper}"
    sys.stderr.write(f"{process_time():7.0f} s  {told}, seed {seed}\n")


if __name__ == "__main__":
    sys.exit(main())
