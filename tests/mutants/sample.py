"""A few guards are taken out, and the test that noticed each in the last sweep must notice it again.

The whole sweep takes hours. noticed.csv keeps what it found, so that a sample takes seconds: first of the modules that
were changed of late, then of all. Another commit has another sample.
"""

import csv
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from tests.mutants.child import Heard, Task, run_all
from tests.mutants.kept import digest
from tests.mutants.sites import ROOT, Site
from tests.mutants.switch import Switch

NOTICED = Path(__file__).with_name("noticed.csv")
COMMITS = 20  # whose modules count as changed
_USUAL_SECONDS = 1.0  # that a test takes, of which the child gives it many times as much


def read_noticed(path: Path = NOTICED) -> dict[str, str]:
    """By the key of a guard, the test that noticed when it was out."""
    with path.open(encoding="utf-8", newline="") as lines:
        return {row["guard"]: row["test"] for row in csv.DictReader(lines)}


def write_noticed(results: Mapping[str, Mapping[str, object]], path: Path = NOTICED) -> None:
    """Keep what a whole sweep has found."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(("guard", "test"))
        rows.writerows(sorted((key, str(one["by"])) for key, one in results.items() if one["by"]))


def choose(sites: Sequence[Site], noticed: Mapping[str, str], count: int) -> list[Site]:
    """So many of those that were noticed, those of changed modules first."""
    known = [site for site in sites if site.key in noticed]
    drawn, changed = Random(digest()).sample(known, len(known)), _changed()
    return sorted(drawn, key=lambda site: site.path not in changed)[:count]


def _changed() -> set[str]:
    """The files of the newest commits; none where there is no history."""
    asked = ["git", "log", f"-{COMMITS}", "--name-only", "--format="]
    return set(subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split())


class Sample:
    """A plug-in of pytest that runs, for each guard that is out, the one test that should notice."""

    def __init__(self, switch: Switch, chosen: Sequence[Site], noticed: Mapping[str, str], processes: int) -> None:
        self._switch, self._chosen, self._noticed, self._processes = switch, chosen, noticed, processes
        self.missed: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Take each out."""
        items = {item.nodeid: item for item in session.items}
        with TemporaryDirectory(prefix="mutants-") as scratch:
            run_all(self._tasks(items), self._switch, Path(scratch), self._processes)
        return True

    def _tasks(self, items: Mapping[str, pytest.Item]) -> Iterator[Task]:
        numbers = {site.key: number for number, site in enumerate(self._switch.sites)}
        for site in self._chosen:
            test = self._noticed[site.key]
            if test not in items:
                self.missed.append(f"{site}: its test is gone: {test}")
                continue

            def heard(said: Heard, site: Site = site, test: str = test) -> None:
                if not said.wrong:
                    self.missed.append(f"{site}: is out, and {test} passes")

            yield Task(numbers[site.key], [items[test]], [_USUAL_SECONDS], heard)
