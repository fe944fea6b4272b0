"""Functions die at each of their side effects, in each core story; whoever calls them does what AWS does.

A single break, everywhere: before a function has done anything, after each call that changes something (it is gone;
its answer is lost; it hangs while the world goes on), and each such call throttled. The same for the functions that
the bus, the queue, the clock and humans call. Then all is told once more, the sweep passes, and what must hold does:
the incident has ended well, or a human has it and was told so, and what he does about it leaves nothing behind.

Two breaks at once are drawn by a seed; `make crashes ARGS="--pairs 1000"` draws more, `--pairs all` tries every pair
(about 50,000 a story: half an hour each on one core).
"""

from itertools import islice

import pytest

from nodeheal.simulation.injected_failures import How
from tests.workflows.breaking_world import Story
from tests.workflows.breaks import all_pairs_of, breaks_of, pairs_of, told
from tests.workflows.rare_stories import RARE_STORIES
from tests.workflows.stories import A_HUMANS, STORIES

SEED = 20261122
ALL = (*STORIES, *RARE_STORIES)


@pytest.mark.parametrize("story", ALL, ids=str)
def test_a_story_that_nothing_breaks_ends_as_it_should(story: Story) -> None:
    it, wrong = told(story)

    assert (it.ends, wrong) == (story.ends, [])
    assert set(story.only) <= {made.function for made in it.fuse.made}  # what is never called is never broken


@pytest.mark.parametrize("story", ALL, ids=str)
def test_wherever_a_function_breaks_nothing_is_harmed_doubled_or_left(story: Story) -> None:
    whole, _ = told(story)

    for injected_failure in breaks_of(story, whole.fuse.made):
        it, wrong = told(story, injected_failure)

        assert wrong == [], f"{injected_failure}, {whole.fuse.made[injected_failure.call - 1]}"
        assert set(it.ends) <= {*story.ends, *A_HUMANS}, (
            f"{injected_failure}, {whole.fuse.made[injected_failure.call - 1]}"
        )


@pytest.mark.parametrize("story", STORIES[:2], ids=str)
def test_a_world_that_answers_only_when_all_is_over_is_no_worse(story: Story) -> None:
    """A function dies, the workflow concludes something, and only then what it had asked for happens."""
    whole, _ = told(story)
    crashes = [
        injected_failure
        for injected_failure in breaks_of(story, whole.fuse.made)
        if injected_failure.how in (How.dies_before, How.dies_after)
    ]

    for injected_failure in crashes:
        _, wrong = told(story, injected_failure, is_late=True)

        assert wrong == [], f"{injected_failure}, {whole.fuse.made[injected_failure.call - 1]}"


@pytest.mark.parametrize("story", ALL, ids=str)
def test_two_breaks_at_once_are_no_worse(story: Story, request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("--pairs")
    pairs = all_pairs_of(story) if count == "all" else islice(pairs_of(story, SEED), int(count))

    for pair in pairs:
        _, wrong = told(story, *pair)

        assert wrong == [], " and ".join(map(str, pair))
