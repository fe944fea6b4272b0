"""What keeps hands off a node while its recovery is under way: modes, pauses, yes and no, limits, and who asked for it.

Each is one history, and says what is wrong with the next decision, which is nothing. `Story` takes only steps that the
core itself has decided.
"""

from datetime import timedelta
from typing import Any

from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import (
    Action,
    Ending,
    Escalation,
    Step,
    Verdict,
)
from nodeheal.domain.fleet.node import PastRecovery
from tests.support.builders import NOW, xid
from tests.support.policies import with_policy
from tests.support.recovery_story import Story

LATER = NOW + timedelta(minutes=10)
STOPS = with_policy(default_pool={"mode": "act", "stop_start": True})


def _asked(action: Action = Action.REBOOT, **policy: Any) -> Story:
    """A human has asked for it."""
    return Story(xid(0, family="host", code=OPERATOR_REQUEST, subcode=action.value, event_id="asked"), **policy)


def _next(story: Story, *steps: Step) -> list[str]:
    decided = story.next()
    return [] if decided.step in steps else [f"{decided.step.value} {decided.action or ''} is next: {decided.reason}"]


def _ends(story: Story, ending: Ending, *why: Escalation) -> list[str]:
    decided = story.next()
    is_right = decided.ending is ending and (not why or decided.escalation in why)
    return [] if is_right else [f"it goes on with {decided.step}, {decided.ending}: {decided.reason}"]


# In the middle of a recovery


def its_job_runs_again_when_it_is_given_back() -> list[str]:
    story = Story(xid(79)).isolated().amid(is_released_or_retired=True, job_is_running=True)
    return _ends(story, Ending.OBSERVED_ONLY)


# What was asked for by hand


def a_request_is_withdrawn_when_it_is_isolated() -> list[str]:
    """Its job was stopped for it, and is down."""
    return _ends(_asked().isolated().amid(is_released_or_retired=True), Ending.HANDED_TO_A_HUMAN)


def a_request_is_withdrawn_and_something_harmless_was_seen() -> list[str]:
    story = _asked().reports(xid(92, verdict=Verdict.DEGRADED)).amid(is_released_or_retired=True)
    return _ends(story, Ending.OBSERVED_ONLY)


# The ladder


def recovered(*names: str, days: int = 1) -> Story:
    """A node with such recoveries to its name."""
    past = tuple(PastRecovery(name, NOW - timedelta(days=days)) for name in names)
    return Story(xid(79)).amid(recoveries=past)
