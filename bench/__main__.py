"""`make bench`: measures nodeheal's cost and speed on this machine, as one table and as build/bench.json.

Each section is measured several times; the figures are medians, with minimum and maximum. Sections that are not
requested keep the figures of an earlier run.
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench.agent import measure_agent
from bench.console import measure_console
from bench.core import measure_core
from bench.functions import measure_functions
from bench.incident import measure_incident
from bench.isolation import measure_storm
from bench.kubernetes import measure_kubernetes, measure_kubernetes_api
from bench.recovery import measure_recovery, measure_slurm
from bench.restart import measure_restart
from bench.simulator import measure_mass_failure, measure_simulator
from bench.start import measure_start
from bench.table import as_text, with_table
from sandbox.kubernetes_story import why_missing as why_no_kubernetes
from sandbox.slurm import why_missing
from tests.support.browser import why_missing as why_no_browser

WRITTEN = Path("build/bench.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
PUBLISHED = PAGE.with_suffix(".json")  # the page's figures; a run of some sections keeps those of the others
Section = Callable[[], Mapping[str, float]]
RUNS = {
    "agent": 3,
    "core": 5,
    "recovery": 3,
    "slurm": 2,
    "kubernetes": 2,
    "kubernetes_api": 1,
    "storm": 2,
    "job": 3,
    "functions": 3,
    "simulator": 3,
    "start": 3,
    "console": 3,
}
# Counted or simulated: a second run gives the same.
EXACT = ("incident", "mass_failure")
# Measured at both latencies; the figures at AWS's are stored under the section's name with this suffix.
AT_AWS = "_aws"


def sections(idle_seconds: float) -> dict[str, Section]:
    """Return all sections, in the order of the table."""
    paced: dict[str, Callable[[str], Mapping[str, float]]] = {
        "recovery": measure_recovery,
        "slurm": measure_slurm,
        "kubernetes": measure_kubernetes,
        "storm": measure_storm,
        "job": measure_restart,
        "mass_failure": measure_mass_failure,
    }
    return {
        "agent": lambda: measure_agent(idle_seconds),
        "core": measure_core,
        "functions": measure_functions,
        "start": measure_start,
        "console": measure_console,
        "incident": measure_incident,
        "kubernetes_api": measure_kubernetes_api,
        "simulator": measure_simulator,
        **{name: partial(measure, "none") for name, measure in paced.items()},
        **{f"{name}{AT_AWS}": partial(measure, "aws") for name, measure in paced.items()},
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, store as JSON, and print."""
    given = _options(arguments)
    measured = _earlier()
    for name in given.sections or _all():
        _measure(measured, name, sections(given.idle_seconds)[name], given.runs)
    sys.stdout.write(as_text(measured))
    sys.stderr.write(f"all figures are in {WRITTEN}\n")
    if given.write_page:
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), measured), "utf-8")
        PUBLISHED.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    known = list(sections(0))
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"only these of {', '.join(known)}")
    parser.add_argument("--runs", type=int, help="of each section that varies; default: 2 to 5, by its length")
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="how long an idle agent is measured")
    parser.add_argument("--write-page", action="store_true", help="put the table into docs/benchmarks.md")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.sections) - set(known))
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(known)}")
    if (given.runs is not None and given.runs < 1) or not 0 < given.idle_seconds < math.inf:
        parser.error("--runs and --idle-seconds are numbers above 0")
    return given


def _all() -> list[str]:
    """Return every section that can be measured here."""
    missing = {
        "slurm": why_missing(),
        "kubernetes": why_no_kubernetes(),
        "kubernetes_api": why_no_kubernetes(),
        "console": why_no_browser(),
    }
    for name, why in missing.items():
        if why:
            sys.stderr.write(f"{name} is left out: {why}\n")
    return [name for name in sections(0) if not missing.get(name.removesuffix(AT_AWS))]


def _earlier() -> dict[str, Any]:
    """Return earlier results of this machine, or else the published ones."""
    for path in (WRITTEN, PUBLISHED):
        try:
            measured = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if "runs" in measured:  # not of an older bench
            return {**measured, **{part: measured.get(part, {}) for part in ("runs", "spread", "machine")}}
    return {"runs": {}, "spread": {}, "machine": {}}


def _measure(measured: dict[str, Any], name: str, section: Section, asked: int | None) -> None:
    kind = name.removesuffix(AT_AWS)
    runs = 1 if kind in EXACT else asked or RUNS[kind]
    taken = []
    for number in range(1, runs + 1):
        sys.stderr.write(f"{name}, run {number} of {runs}\n")
        taken.append(section())
        _keep(measured, name, taken)


def _keep(measured: dict[str, Any], name: str, taken: list[Mapping[str, float]]) -> None:
    """Store the results after every run, so that an interrupted run loses only itself."""
    measured[name] = {key: statistics.median(run[key] for run in taken) for key in taken[0]}
    measured["spread"][name] = {key: [min(r[key] for r in taken), max(r[key] for r in taken)] for key in taken[0]}
    measured["runs"][name] = len(taken)
    measured["machine"][name] = _machine()
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(measured, indent=2) + "\n", "utf-8")


def _machine() -> dict[str, object]:
    return {
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "kernel": platform.release().split("-")[0],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
