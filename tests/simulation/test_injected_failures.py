"""An injected failure strikes the very call that it names, and what follows is what follows in an account."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from nodeheal.domain.errors import NotAccepted
from nodeheal.simulation.hazards import Died, FaultInjectingPort, Hazards, NoAnswer
from nodeheal.simulation.injected_failures import How, InjectedFailure, can_be_refused, parse_injected_failure
from nodeheal.simulation.runner import run_pool
from nodeheal.simulation.schedules import schedule
from nodeheal.simulation.setting import CALM


class Store:
    """Counts its saves, and sees how late it was."""

    def __init__(self, world: list[str]) -> None:
        self._world = world

    def save(self, thing: str) -> bool:
        self._world.append(f"saved {thing}")
        return True


def _struck(how: How) -> tuple[list[str], object]:
    """(what happened in the world, in its order, what the function heard of its second call of two)."""
    world: list[str] = []
    left = ["first", "second"]

    def goes_on() -> bool:
        if left:
            world.append(left.pop(0))
        return bool(left)

    hazards = Hazards(Random(1), CALM, goes_on, (InjectedFailure(2, how),))
    store: Any = FaultInjectingPort("nodes", Store(world), hazards)
    hazards.depth = 1
    assert store.save("one") is True
    try:
        return world, store.save("two")
    except (Exception, Died) as error:
        return world, type(error)


@pytest.mark.parametrize(
    ("how", "world", "heard"),
    [
        (How.dies_before, ["saved one"], Died),
        (How.dies_after, ["saved one", "saved two"], Died),
        (How.hangs, ["saved one", "saved two", "first", "second"], Died),
        (How.is_late, ["saved one", "first", "second", "saved two"], True),
        (How.unanswered, ["saved one", "saved two"], NoAnswer),
        (How.throttled, ["saved one"], NotAccepted),
        (How.refused, ["saved one"], False),
    ],
)
def test_each_way_does_what_it_says(how: How, world: list[str], heard: object) -> None:
    assert _struck(how) == (world, heard)


def test_what_its_port_promises_no_refusal_of_is_not_refused() -> None:
    assert (can_be_refused("machines.launch"), can_be_refused("workflows.resume")) == (True, False)


def test_a_run_with_an_injected_failure_is_the_same_until_then_and_another_one_after() -> None:
    setting = schedule(3)
    whole, struck = (
        run_pool(setting),
        run_pool(replace(setting, injected_failures=(InjectedFailure(60, How.dies_after),))),
    )

    again = run_pool(replace(setting, injected_failures=(InjectedFailure(60, How.dies_after),)))

    assert struck.struck == whole.struck + 1
    assert (struck.digests == again.digests, struck.digests == whole.digests) == (True, False)


@pytest.mark.parametrize("text", ["60", "60:explodes", ":throttled", "-1:throttled", "60:throttled:61"])
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="give the number of a call"):
        parse_injected_failure(text)


def test_what_is_said_is_what_is_read() -> None:
    assert [parse_injected_failure(str(InjectedFailure(7, how))) for how in How] == [
        InjectedFailure(7, how) for how in How
    ]
