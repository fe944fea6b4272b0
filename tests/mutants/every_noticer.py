"""`--all`: every test that notices a guard's removal, not only the first, so that redundant tests can be told.

A boundary is taken out as well: `<` becomes `<=`, `>` becomes `>=`, and the reverse. A test that notices no guard and
no boundary alone may still hold a promise, a text that people read or a value; the person who deletes it looks.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.mutants.child import Heard, Task, run_all
from tests.mutants.choice import nearest
from tests.mutants.kept import KEPT
from tests.mutants.sites import Site
from tests.mutants.sweep import LONGEST_SECONDS, Sweep, is_left_out

ALL_NOTICERS = KEPT / "all.json"
RECORDED_FOR_ALL = KEPT.with_name("mutants-all")  # boundaries are numbered there, too
TESTS_AT_MOST = 120  # for each guard, of those to which it matters; times the effort


class EveryNoticer(Sweep):
    """A plug-in of pytest: each guard is out for all tests to which it matters, whoever has noticed before."""

    noticers: dict[str, list[str]]
    unasked: dict[str, int]  # by guard, to how many more tests it matters

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record, then take each guard out once."""
        self.noticers, self.unasked = {}, {}
        self._items = {item.nodeid: item for item in session.items if not is_left_out(item.nodeid)}
        self._warm_up()
        with TemporaryDirectory(prefix="mutants-") as scratch:
            for tasks in (self._recordings(), self._all_removals()):
                run_all(tasks, self._switch, Path(scratch), self._processes)
        return True

    def _all_removals(self) -> Iterator[Task]:
        to_whom = self._mattering_to_any()
        sites = [(number, site) for number, site in enumerate(self._switch.sites) if site.where.startswith(self.only)]
        for done, (number, site) in enumerate(sites):
            self._tell(f"{done} of {len(sites)}: {site}")
            tests = nearest(site.module, to_whom.get(number, []), self._kept.recorded)
            nearest_tests = tests[: round(TESTS_AT_MOST * self._effort)]
            self.noticers[site.key], self.unasked[site.key] = [], len(tests) - len(nearest_tests)
            if nearest_tests:
                yield self._task(number, nearest_tests, partial(self._note_all, site), stops_at_first=False)

    def _note_all(self, site: Site, heard: Heard) -> None:
        names = [said["test"] for said in heard.said if said["wrong"]]
        is_hung = heard.wrong and heard.last not in {said["test"] for said in heard.said}
        self.noticers[site.key] += [*names, heard.last] if is_hung else names

    def _mattering_to_any(self) -> Mapping[int, list[str]]:
        to_whom: dict[int, list[str]] = {}
        for test, record in self._kept.recorded.items():
            if record["seconds"] <= LONGEST_SECONDS and test in self._items:
                for number in record["mattered"]:
                    to_whom.setdefault(number, []).append(test)
        return to_whom

    def write(self, path: Path = ALL_NOTICERS) -> None:
        """By guard, its noticers and how many tests were not asked; what other runs have found of others stays."""
        before = json.loads(path.read_text("utf-8")) if path.exists() else {}
        new = {key: {"by": names, "unasked": self.unasked[key]} for key, names in self.noticers.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**before, **new}, indent=1, sort_keys=True) + "\n", "utf-8")
