"""Pools whose guardrails hold a recovery back."""

from nodeheal.contract.results import Refused
from nodeheal.contract.vocabulary import (
    Outcome,
    Refusal,
    Step,
)
from nodeheal.domain.fleet.pool import Pool
from tests.support.builders import NOW, xid
from tests.support.pauses import pause_of_node, pause_of_pool
from tests.support.policies import with_policy
from tests.support.recovery_story import Story

APPROVE = with_policy(default_pool={"mode": "approve"})


OPEN = Pool("demo", breaker_opened_at=NOW, breaker_why="6 nodes of the pool fail together, 6 of them with rack r7")


FULL = Refused(code=Refusal.BUDGET_FULL, slots=1)


def waited(story: Story, outcome: Outcome, reason: str = "there is news") -> Story:
    assert story.next().step is Step.WAIT, story.next().reason
    return story.then(outcome, reason)


def full(story: Story) -> Story:
    return story.then(Outcome.REFUSED, "the disruption budget of pool demo is full: 1 of 1 (mi-other)", facts=FULL)


PAUSED = {
    "pool": {"pauses": pause_of_pool()},
    "node": {"pauses": pause_of_node(xid(79).node_id)},
}


def no_capacity(story: Story) -> Story:
    assert story.next().step is Step.REPLACE, story.next().reason
    return story.then(
        Outcome.REFUSED, "no p5.48xlarge in use1-az4", facts=Refused(code=Refusal.NO_CAPACITY, missing="p5.48xlarge")
    )
