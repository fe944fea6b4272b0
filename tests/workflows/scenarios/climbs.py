"""How often a fault has come, where and when, and what that makes of it; and where a node's life must not go.

Each is one history or one moment, and says what is wrong after it, which is nothing.
"""

from datetime import timedelta
from typing import Any

from nodeheal.contract.vocabulary import Action, Outcome, Step
from tests.support.builders import NOW
from tests.support.observations import later, no_gpus
from tests.support.recovery_story import Story

EARLIER = NOW - timedelta(seconds=20)


def next_is(story: Story, step: Step, action: Action | None = None) -> list[str]:
    """What is wrong where another step is decided on."""
    decided = story.next()
    is_right = decided.step is step and action in (None, decided.action)
    return [] if is_right else [f"{decided.step.value} {decided.action or ''} is next: {decided.reason}"]


# While it comes up


def _comes_up(seconds: int, **said: Any) -> Story:
    """Its accelerators are missing, and so long after its boot something is reported."""
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    story.reports(no_gpus(event_id="later", observed_at=later(seconds), **said)).now = later(330)
    return story
