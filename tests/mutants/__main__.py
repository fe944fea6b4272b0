"""`make mutants`: take every guard out of the code that acts, one at a time, and see who notices.

A full sweep takes long. What is found is kept under build/mutants: one that was broken off goes on, and after a change
each guard is first held against the test that noticed it before.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.mutants.aim import modules
from tests.mutants.every_noticer import ALL_NOTICERS, RECORDED_FOR_ALL, EveryNoticer
from tests.mutants.harmless import all_sites, complaints, read_rows
from tests.mutants.kept import Kept
from tests.mutants.sample import Sample, choose, read_noticed, write_noticed
from tests.mutants.sites import ROOT
from tests.mutants.sweep import Json, Sweep
from tests.mutants.switch import Switch

# Of the agent's tests, those of an order's whom and until.
OF_ORDERS = tuple(f"tests/unit/agent/test_{name}.py" for name in ("diagnose", "fabric", "node_commands", "reboot"))
TESTS = ("tests/mutants/battery.py", "tests/workflows", "tests/simulation", "tests/twins", *OF_ORDERS)
# Children are forked, not spawned, and print nothing; none of them shares a cache or a deadline with another.
PYTEST = ("-q", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "timeout=0", "--rootdir", str(ROOT))


def main(given: list[str] | None = None) -> int:
    """Sweep, and tell. Fails where a guard goes unnoticed that is not listed, or is listed and should not be."""
    asked = _options(given)
    if asked.list:
        sites = [site for site in all_sites(modules()) if site.where.startswith(asked.only)]
        sys.stdout.write("".join(f"{site}\n" for site in sites))
        return not sites
    if asked.sample:
        return sample(modules(), asked.sample, asked.processes)
    units = sorted(
        str(path) for folder in ("unit", "unit/operations") for path in (ROOT / "tests" / folder).glob("test_*.py")
    )
    if asked.all:
        tests = asked.tests or (*TESTS, *units)
        every = every_noticer(modules(), tests, Kept(RECORDED_FOR_ALL), asked.only, asked.processes, asked.effort)
        every.write()
        sys.stdout.write(f"{len(every.noticers)} guards and boundaries: {ALL_NOTICERS}\n")
        return 0
    kept = Kept()
    swept = sweep(modules(), (*TESTS, *units), kept, asked.only, asked.processes, asked.effort)
    report = reported(swept, kept)
    if not asked.only:
        write_noticed(kept.results)
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return tell(report)


def sweep(
    sources: Mapping[str, Path],
    tests: Iterable[str],
    kept: Kept,
    only: str = "",
    processes: int = 1,
    effort: float = 1.0,
) -> Sweep:
    """Take out the guards of these modules that begin with `only`."""
    switch = Switch(sources)
    sys.meta_path.insert(0, switch)
    swept = Sweep(switch, kept, only, processes, effort)
    code = pytest.main([*PYTEST, *tests], [swept])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"the tests were not collected, or the sweep broke off: {code!r}")
    return swept


def every_noticer(
    sources: Mapping[str, Path], tests: Iterable[str], kept: Kept, only: str, processes: int, effort: float
) -> EveryNoticer:
    """Take out the guards and boundaries that begin with `only`, each for all tests that it matters to."""
    switch = Switch(sources, with_bounds=True)
    sys.meta_path.insert(0, switch)
    every = EveryNoticer(switch, kept, only, processes, effort)
    code = pytest.main([*PYTEST, *tests], [every])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"the tests were not collected, or the sweep broke off: {code!r}")
    return every


def sample(sources: Mapping[str, Path], count: int, processes: int) -> int:
    """Take so many guards out; the test that noticed each before must notice it again."""
    switch = Switch(sources)
    sys.meta_path.insert(0, switch)
    noticed = read_noticed()
    chosen = choose(switch.sites, noticed, count)
    sampled = Sample(switch, chosen, noticed, processes)
    files = sorted({noticed[site.key].partition("::")[0] for site in chosen})
    code = pytest.main([*PYTEST, *files], [sampled])
    for one in sampled.missed:
        sys.stdout.write(f"{one}\n")
    sys.stdout.write(f"{len(chosen)} guards were out, {len(sampled.missed)} of them unnoticed\n")
    return bool(sampled.missed) or code != pytest.ExitCode.OK or not chosen


def reported(swept: Sweep, kept: Kept) -> Json:
    """All that was found."""
    rows = [row for row in read_rows() if row.where.startswith(swept.only)]
    listed = {row.key: row.why for row in rows}
    guards = [
        {**kept.results[site.key], "key": site.key, "told": str(site), "why": listed.get(site.key, "")}
        for site in swept.sites
    ]
    return {
        "guards": guards,
        "broken": swept.broken,
        "complaints": complaints(rows, swept.sites, kept.results),
        "counted": Counter(_class_of(guard) for guard in guards),
    }


def _class_of(guard: Json) -> str:
    return "harmless" if guard["outcome"] == "survived" and guard["why"] else str(guard["outcome"])


def tell(report: Json) -> int:
    """The guards that only unit tests notice, the ones that nobody does, and what is wrong besides."""
    for outcome, title in (("unit", "noticed by unit tests only"), ("survived", "NOTICED BY NOBODY")):
        of_it = [guard for guard in report["guards"] if _class_of(guard) == outcome]
        sys.stdout.write(f"\n{title}: {len(of_it)}\n" + "".join(f"  {guard['told']}\n" for guard in of_it))
    for wrong in (*report["complaints"], *(f"fails with every guard in place: {one}" for one in report["broken"])):
        sys.stdout.write(f"{wrong}\n")
    counted = ", ".join(f"{count} {name}" for name, count in sorted(report["counted"].items()))
    sys.stdout.write(f"{len(report['guards'])} guards: {counted}\n")
    return bool(report["counted"].get("survived") or report["complaints"] or report["broken"])


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="what begins so: a module, or a function of one")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="only so many, asking noticed.csv who notices"
    )
    parser.add_argument("--all", action="store_true", help="every noticer of each guard, into build/mutants/all.json")
    parser.add_argument("--tests", nargs="*", help="with --all: only tests of these files are asked")
    parser.add_argument("--list", action="store_true", help="only say which guards there are")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="children at a time")
    parser.add_argument(
        "--effort", type=float, default=1.0, help="so many times the tests, for what nobody has noticed"
    )
    parser.add_argument("--json", type=Path, help="where all that was found is written")
    asked = parser.parse_args(given)
    if asked.processes < 1 or asked.effort <= 0:
        parser.error("--processes: at least 1; --effort: more than 0")
    return asked


if __name__ == "__main__":
    sys.exit(main())
