"""Where and how a story can be broken: around each call that changes something, in each way that counts."""

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from nodeheal.simulation.injected_failures import How, InjectedFailure
from tests.support.fuse import Fuse, Made
from tests.workflows.breaking_world import BreakingWorld, Story

# Step Functions calls them again when their answer is lost; it waits for the token of all the others.
ASKED_AGAIN = {"decide_next_step", "return_to_service", "end_incident", "judge_checks"}
# Who calls these calls them again after any error.
TOLD_AGAIN = (
    "wakeup.",
    "ingest",
    "sweep",
    "notify",
    "release_node",
    "retire_node",
    "close_incident",
    "answer_approval",
    "pause_pool",
    "pause_node",
    "withdraw_request",
    "reset_breaker",
    "submit_job",
    "ask_to_stop",
    "enroll_node",
    "take_signal",
)
SAID_TWICE = "again"  # the same functions, with what they have heard already


class Limited(Protocol):
    """A story: of which functions it is."""

    @property
    def only(self) -> tuple[str, ...]:
        """Empty: of all."""


def told(story: Story, *injected_failures: InjectedFailure, is_late: bool = False) -> tuple[BreakingWorld, list[str]]:
    """The story with these breaks in it, and what is wrong after it."""
    it = story.make(Fuse(injected_failures, writes_only=True))
    it.is_late = is_late
    story.tell(it)
    return it, it.faults()


def breaks_of(story: Limited, made: Sequence[Made], since: int = 0) -> Iterator[InjectedFailure]:
    """Every single break of these calls of the story, behind the first so many."""
    for number in range(since, len(made)):
        is_meant = not story.only or made[number].function in story.only
        if is_meant and made[number].function != SAID_TWICE:
            is_last = number + 1 == len(made) or made[number + 1].is_first
            yield from (InjectedFailure(number + 1, how) for how in _hows(made[number], is_last))


def _hows(made: Made, is_last: bool) -> Iterator[How]:
    is_told_again, acts = made.function.startswith(TOLD_AGAIN), made.call.startswith(("machines.", "commands."))
    if made.is_first and not is_told_again:  # else nothing has happened, and it happens a moment later
        yield How.dies_before
    yield How.dies_after
    if acts or not is_told_again:
        yield How.throttled
    if not is_told_again:
        yield How.answer_lost if made.function in ASKED_AGAIN else How.hangs
    if is_last and not is_told_again and not acts:  # something that only looks is throttled at the very end
        yield How.throttled_after


def pairs_of(story: Story, seed: int) -> Iterator[tuple[InjectedFailure, InjectedFailure]]:
    """Two breaks of the story, the second one in what the first one leads to; drawn for ever, if there are any."""
    draw = random.Random(seed)
    whole, _ = told(story)
    singles = list(breaks_of(story, whole.fuse.made))
    while singles:
        first = draw.choice(singles)
        broken, _ = told(story, first)
        seconds = list(breaks_of(story, broken.fuse.made, first.call))
        if seconds:
            yield first, draw.choice(seconds)
        else:
            singles.remove(first)


def all_pairs_of(story: Story) -> Iterator[tuple[InjectedFailure, InjectedFailure]]:
    """All of them."""
    whole, _ = told(story)
    for first in breaks_of(story, whole.fuse.made):
        broken, _ = told(story, first)
        for second in breaks_of(story, broken.fuse.made, first.call):
            yield first, second
