"""Each invariant can fail: with one guard taken away it names what was broken, and with the guard it is silent."""

import pytest

from nodeheal.simulation import invariants
from tests.simulation.builders import HOUR
from tests.simulation.cases import CASES, calm
from tests.simulation.taken_away import Patch


def _broken(name: str) -> list[str]:
    _, happen, policy, work = CASES[name]
    world = calm(policy, work)
    happen(world)
    world.advance(8 * HOUR)
    world.finish(HOUR)
    assert world.fleet.faults or name in ("nothing_stale_opens_an_incident", "nothing_is_left_of_a_job")
    return [violation.invariant for violation in world.watch.violations]


@pytest.mark.parametrize("name", CASES)
def test_without_its_guard_it_is_named(name: str, monkeypatch: Patch) -> None:
    take_away, *_ = CASES[name]
    take_away(monkeypatch)

    assert name in _broken(name)


@pytest.mark.parametrize("name", CASES)
def test_with_its_guard_nothing_is_broken(name: str) -> None:
    assert _broken(name) == []


def test_every_invariant_has_its_case() -> None:
    assert {check.__name__ for check in invariants.ALL} | {"two_runs_never_write_at_once"} == set(CASES)
