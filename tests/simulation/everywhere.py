"""Breaks a function at every place where a port is written to that random schedules come to.

Which run comes to which place, and by which of its calls, is seen by running. What is broken at a place may lead to
places that no whole run comes to: those are broken too, beside what led there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.simulation.injected_failures import How, InjectedFailure, can_be_refused
from nodeheal.simulation.report import SimulationReport
from nodeheal.simulation.runner import run_world
from nodeheal.simulation.schedules import schedule
from nodeheal.simulation.world import SimulatedPool
from tests.support.places import Place, place_called
from tests.support.reads import READS

Numbered = tuple[int, SchedulerKind]  # a schedule's number, and whose nodes they are


@dataclass(frozen=True)
class Way:
    """How a place is come to: by this schedule, with these injected failures, at this call."""

    schedule: Numbered
    injected_failures: tuple[InjectedFailure, ...]
    call: int

    def __str__(self) -> str:
        given = "".join(f" --inject-failure {injected_failure}" for injected_failure in self.injected_failures)
        number, scheduler = self.schedule
        on = "" if scheduler is SchedulerKind.ECS else f" --scheduler {scheduler.lower()}"
        return f"nodeheal simulate --schedule {number}{on}{given}"

    def with_injected_failure(self, how: How) -> "Way":
        """The same, and this happens there."""
        return replace(self, injected_failures=(*self.injected_failures, InjectedFailure(self.call, how)))


class Recorder:
    """Watches one run: at which of its calls it came to which place first."""

    def __init__(self, world: SimulatedPool) -> None:
        self._world, self._call = world, world.hazards.call
        self.seen: dict[Place, int] = {}
        world.hazards.call = self._watch  # type: ignore[method-assign, assignment]

    def _watch(self, name: str, *given: Any) -> Any:
        if self._world.hazards.depth and name.rpartition(".")[2] not in READS:
            place = place_called(name)
            if place is not None:
                self.seen.setdefault(place, self._world.hazards.calls + 1)
        return self._call(name, *given)


def run(
    which: Numbered, injected_failures: tuple[InjectedFailure, ...] = ()
) -> tuple[SimulationReport, dict[Place, int], int]:
    """This schedule with these injected failures.

    Returns what came of it, which places it came to by which calls, and how many calls it made.
    """
    world = SimulatedPool(replace(schedule(*which), injected_failures=injected_failures))
    recorder = Recorder(world)
    return run_world(world), recorder.seen, world.hazards.calls


def hows(place: Place) -> Iterator[How]:
    """What can happen there."""
    return (how for how in How if how is not How.refused or can_be_refused(place.call))


@dataclass
class Broken:
    """What came of breaking every place that was come to."""

    ways: dict[Place, list[Way]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    runs: int = 0

    def come_to(
        self, seen: Mapping[Place, int], which: Numbered, injected_failures: tuple[InjectedFailure, ...], limit: int
    ) -> set[Place]:
        """Remember the way to these, for so many ways a place; which of them are new."""
        new = set(seen) - set(self.ways)
        for place, call in seen.items():
            known = self.ways.setdefault(place, [])
            if len(known) < limit:
                known.append(Way(which, injected_failures, call))
        return new

    def breaks(self, place: Place, limit: int) -> set[Place]:
        """Break it in every way; the places that only this has led to."""
        new: set[Place] = set()
        for way in list(self.ways[place]):
            for how in hows(place):
                hit = way.with_injected_failure(how)
                report, seen, _ = run(hit.schedule, hit.injected_failures)
                self.runs += 1
                self.wrong += [f"{place}: {one.invariant}: {one.text}\n    {hit}" for _, one in report.violations]
                self.wrong += [f"{place}: raised {name}\n    {hit}" for name in report.surprises if not _may(name, how)]
                new |= self.come_to(seen, hit.schedule, hit.injected_failures, limit)
        return new


def _may(surprise: str, how: How) -> bool:
    """What a function may end with: its answer was lost, or what the port promises to say no with. A human is paged."""
    return "NoAnswer" in surprise or (how is How.refused and "NotFound" in surprise)


def break_everywhere(schedules: Sequence[Numbered], ways: int) -> Broken:
    """Come to all places that these schedules come to, break each, and each that only this leads to.

    A place is broken in the shortest runs that come to it: the longest take a hundred times as long.
    """
    it = Broken()
    runs = [(*run(which)[1:], which) for which in schedules]
    for seen, _, which in sorted(runs, key=lambda one: one[1]):
        it.come_to(seen, which, (), ways)
    todo = sorted(it.ways)
    while todo:
        todo = sorted({new for place in todo for new in it.breaks(place, ways)})
    return it
