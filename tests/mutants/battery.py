"""What notices, besides the tests that there are: their long loops, a turn at a time, so that only the turns are taken
in which the guard would have said something else. Collected by `make mutants` alone.
"""

from collections.abc import Iterator
from itertools import islice

import pytest

from nodeheal.simulation.injected_failures import InjectedFailure
from nodeheal.simulation.schedules import run_some
from tests.workflows.breaking_world import Story
from tests.workflows.breaks import breaks_of, told
from tests.workflows.ordered_stories import AT_ONCE, NAMED
from tests.workflows.ordered_stories import STORIES as ORDERED
from tests.workflows.ordered_stories import told as told_in_order
from tests.workflows.orders import orders_of
from tests.workflows.stories import A_HUMANS, STORIES

SCHEDULES = 600
EVERY = 6  # of the orders


def _breaks() -> Iterator[tuple[Story, InjectedFailure]]:
    for story in STORIES:
        whole, _ = told(story)
        yield from ((story, injected_failure) for injected_failure in breaks_of(story, whole.fuse.made))


def _orders() -> Iterator[tuple[str, tuple[str, ...], bool]]:
    for story, (_, _, names) in ORDERED.items():
        for order in islice(orders_of(names, AT_ONCE), 0, None, EVERY):
            yield from ((story, order, is_eager) for is_eager in (False, True))


@pytest.mark.parametrize(("story", "injected_failure"), _breaks(), ids=str)
def test_a_break(story: Story, injected_failure: InjectedFailure) -> None:
    it, wrong = told(story, injected_failure)

    assert wrong == []
    assert set(it.ends) <= {*story.ends, *A_HUMANS}


@pytest.mark.parametrize(("story", "order", "is_eager"), _orders(), ids=str)
def test_an_order(story: str, order: tuple[str, ...], is_eager: bool) -> None:
    code, verdict, names = ORDERED[story]
    _, usual = told_in_order((names[0],), code, verdict, is_eager=False)

    it, outcome = told_in_order(order, code, verdict, is_eager=is_eager)

    assert it.wrong == []
    assert outcome == usual or NAMED.get(outcome.why) in it.timed_out


@pytest.mark.parametrize("number", range(SCHEDULES))
def test_a_schedule(number: int) -> None:
    _, _, broken, surprises = run_some([number])

    assert (broken, surprises) == ([], {})
