"""An incident whose machine is to be stopped and started."""

from typing import Any

from nodeheal.contract.vocabulary import Action, Outcome, Provider
from nodeheal.domain.policy.policy import RecoveryPolicy
from tests.support.builders import xid
from tests.support.policies import with_policy
from tests.support.recovery_story import Story

POOL = {"mode": "act", "stop_start": True, "budget": {"max_nodes": 1, "max_percent": 100}}


MOVES = with_policy(default_pool=POOL)


def broken(policy: RecoveryPolicy = MOVES, provider: Provider = Provider.ec2, code: int = 79) -> Story:
    return Story(xid(code), policy=policy).amid(provider=provider).isolated()


def next_rung(story: Story) -> Action | None:
    return story.next().action


def stopped(story: Story, outcome: Outcome = Outcome.DONE, **changes: Any) -> Story:
    assert next_rung(story) is Action.STOP_START, story.next().reason
    return story.then(outcome, changes.pop("reason", "back with a new boot id"), **changes)
