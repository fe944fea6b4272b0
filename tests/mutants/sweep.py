"""The sweep: each test once with all guards in place, then each guard out, until a test notices.

Only the tests are asked to which the guard matters: in which it has said something else than what it is taken to say.
To all others the code is the same with it and without it.
"""

import gc
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.child import Heard, Task, run_all
from tests.mutants.choice import nearest, spread
from tests.mutants.harmless import read_rows
from tests.mutants.kept import Kept
from tests.mutants.sites import Site
from tests.mutants.switch import Switch

# How many tests of each kind are asked about one guard, where it matters to more: of each test function some.
AT_MOST = {
    "test_nothing_goes_wrong": 24,
    "walk": 14,
    "slow": 1,
    "test_a_break": 8,
    "test_an_order": 2,
    "test_a_schedule": 2,
    "unit": 100,
}
SLOW_SECONDS = 0.1
QUIET_SECONDS = 10.0  # between two lines of progress in a log
AT_ONCE = 25  # recordings in one child
LONGEST_SECONDS = 4.0  # of one test; tests/mutants/battery.py has the long ones in pieces
# They take guards out themselves, or are in pieces in the battery, or hold something against a file of its own.
LEFT_OUT = (
    "::test_without_its_guard_",
    "test_wherever_a_function_breaks",
    "test_a_world_that_answers_only_when_all_is_over",
    "test_in_whatever_order",
    "test_no_schedule_breaks",
    "test_every_place_that_is_written_to",
    "test_meter.py",
    "test_determinism.py",  # compares with a process of its own, in which no guard is out
)
UNIT = "tests/unit/"
WARMING = ("test_a_break", "test_an_order", "test_a_schedule", "test_run_job.py")
Json = dict[str, Any]


class Sweep:
    """A plug-in of pytest that runs the tests its own way."""

    def __init__(self, switch: Switch, kept: Kept, only: str, processes: int, effort: float) -> None:
        self._switch, self._kept, self._processes, self._effort = switch, kept, processes, effort
        self.only = only
        self._items: dict[str, pytest.Item] = {}
        self._began, self._told_at = monotonic(), 0.0
        self.broken: list[str] = []  # tests that fail with all guards in place

    @property
    def sites(self) -> list[Site]:
        """The guards that are taken out."""
        return [site for site in self._switch.sites if site.where.startswith(self.only)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record, then take each guard out: for the simulation, for the unit tests, and for whoever else may notice."""
        self._items = {item.nodeid: item for item in session.items if not is_left_out(item.nodeid)}
        self._warm_up()
        with TemporaryDirectory(prefix="mutants-") as scratch:
            removals = (self._removals(is_unit=False), self._removals(is_unit=True), self._last_removals())
            for tasks in (self._recordings(), *removals):
                run_all(tasks, self._switch, Path(scratch), self._processes)
        if not self.only:
            self._kept.forget_older()
        return True

    def _warm_up(self) -> None:
        """What is read and compiled once, no child has to read and compile."""
        for name in WARMING:
            item = next((item for nodeid, item in self._items.items() if name in nodeid), None)
            if item is not None:
                runtestprotocol(item, log=False, nextitem=None)
        gc.collect()
        gc.freeze()  # a collection in a child would copy all of it

    def _recordings(self) -> Iterator[Task]:
        left = [item for nodeid, item in self._items.items() if nodeid not in self._kept.recorded]
        for first in range(0, len(left), AT_ONCE):
            self._tell(f"recording: {first} of {len(left)} tests")
            some = left[first : first + AT_ONCE]
            yield Task(None, some, [LONGEST_SECONDS] * len(some), self._record)

    def _record(self, heard: Heard) -> None:
        if heard.wrong and not heard.said:
            self.broken.append(f"{heard.last}: {heard.wrong}")
        for said in heard.said:
            if said["wrong"]:
                self.broken.append(f"{said['test']}: {said['wrong']}")
            else:
                self._kept.keep_recorded(said["test"], {"seconds": said["seconds"], "mattered": said["mattered"]})

    def _removals(self, *, is_unit: bool) -> Iterator[Task]:
        to_whom = self._mattering(is_unit=is_unit)
        left = [(n, site) for n, site in enumerate(self._switch.sites) if self._is_open(site, is_unit=is_unit)]
        for done, (number, site) in enumerate(left):
            self._tell(f"{'unit tests: ' if is_unit else ''}{done} of {len(left)}: {site}")
            matters_to = to_whom.get(number, [])
            tests = self._chosen(site, matters_to)
            noted = partial(self._note, site, len(matters_to) - len(tests), is_unit=is_unit)
            if tests:
                yield self._task(number, tests, noted)
            else:
                noted(Heard())

    def _task(
        self, number: int, tests: Sequence[str], noted: Callable[[Heard], None], *, stops_at_first: bool = True
    ) -> Task:
        seconds = [self._kept.recorded[test]["seconds"] for test in tests]
        return Task(number, [self._items[test] for test in tests], seconds, noted, stops_at_first)

    def _last_removals(self) -> Iterator[Task]:
        """Of what nobody has noticed, and no row says that nobody need: all others to whom it matters are asked."""
        to_whom = [self._mattering(is_unit=is_unit) for is_unit in (False, True)]
        harmless = {row.key for row in read_rows()}
        for number, site in enumerate(self._switch.sites):
            known = self._kept.results.get(site.key)
            if known is None or site.key in harmless or not site.where.startswith(self.only):
                continue
            if known["outcome"] == "survived" and known["left"]:
                self._tell(f"whoever else: {site}")
                asked = [test for matters_to in to_whom for test in self._chosen(site, matters_to.get(number, []))]
                others = {test for matters_to in to_whom for test in matters_to.get(number, [])} - set(asked)
                tests = nearest(site.module, others, self._kept.recorded)
                yield self._task(number, tests, partial(self._note_last, site))

    def _is_open(self, site: Site, *, is_unit: bool) -> bool:
        """Whether nobody has been asked about it yet, or not all who might notice, and more are asked now."""
        known = self._kept.results.get(site.key)
        if not site.where.startswith(self.only):
            return False
        if is_unit:
            return known is not None and known["outcome"] == "unseen"
        is_sure = known is not None and (known["outcome"] == "simulation" or not known["left"])
        return known is None or not (is_sure or known["effort"] >= self._effort)

    def _note(self, site: Site, left: int, heard: Heard, *, is_unit: bool) -> None:
        before = self._kept.results[site.key] if is_unit else {"tried": 0, "left": 0, "seconds": 0.0}
        unnoticed = "survived" if is_unit else "unseen"
        result = {
            "outcome": ("unit" if is_unit else "simulation") if heard.wrong else unnoticed,
            "by": heard.last if heard.wrong else "",
            "wrong": heard.wrong,
            "tried": before["tried"] + len(heard.said),
            "left": before["left"] + (0 if heard.wrong else left),
            "seconds": before["seconds"] + sum(said["seconds"] for said in heard.said),
            "effort": self._effort,
        }
        self._kept.keep(site.key, result)

    def _note_last(self, site: Site, heard: Heard) -> None:
        before = self._kept.results[site.key]
        noticed = {"outcome": "unit" if UNIT in heard.last else "simulation", "by": heard.last, "wrong": heard.wrong}
        result = {
            **(before | noticed if heard.wrong else before),
            "tried": before["tried"] + len(heard.said),
            "left": 0,
            "seconds": before["seconds"] + sum(said["seconds"] for said in heard.said),
        }
        self._kept.keep(site.key, result)

    def _mattering(self, *, is_unit: bool) -> dict[int, list[str]]:
        """By guard, the tests to which it matters, the cheapest first."""
        to_whom: dict[int, list[str]] = {}
        for test, record in sorted(self._kept.recorded.items(), key=lambda one: float(one[1]["seconds"])):
            if (UNIT in test) is is_unit and record["seconds"] <= LONGEST_SECONDS and test in self._items:
                for number in record["mattered"]:
                    to_whom.setdefault(number, []).append(test)
        return to_whom

    def _chosen(self, site: Site, tests: Sequence[str]) -> list[str]:
        """Who noticed it before; then of each kind as many as may be, those that cost least first."""
        first, chosen = self._kept.asked_first(site.key), set[str]()
        for kind, most in AT_MOST.items():
            of_kind = [test for test in tests if self._kind_of(test) == kind]
            drawn = Random(site.key).sample(of_kind, len(of_kind))
            if kind == "unit":  # the fewer guards matter to it, the more it is about this one
                drawn.sort(key=lambda test: len(self._kept.recorded[test]["mattered"]))
            chosen.update(spread(drawn)[: math.ceil(most * self._effort)])
        asked = sorted(chosen - {first}, key=lambda test: float(self._kept.recorded[test]["seconds"]))
        return [first, *asked] if first in tests else asked

    def _kind_of(self, test: str) -> str:
        """Of a test, by its name, or by what it takes."""
        kind = "unit" if UNIT in test else next((kind for kind in AT_MOST if f"::{kind}[" in test), "walk")
        return "slow" if kind == "walk" and self._kept.recorded[test]["seconds"] > SLOW_SECONDS else kind

    def _tell(self, text: str) -> None:
        """Where it is: over the line before on a terminal, else now and then."""
        seconds = monotonic() - self._began
        if sys.stderr.isatty() or seconds - self._told_at > QUIET_SECONDS:
            self._told_at = seconds
            begin, end = ("\r", "") if sys.stderr.isatty() else ("", "\n")
            sys.stderr.write(f"{begin}{f'{seconds:5.0f} s  {text}':<140.140}{end}")
            sys.stderr.flush()


def is_left_out(test: str) -> bool:
    """Whether this test is not asked."""
    return any(name in test for name in LEFT_OUT)
