"""A job that is moved away from a broken node."""

from typing import Any

from nodeheal.contract.vocabulary import Action
from tests.support.builders import ACT, xid
from tests.support.recovery_story import Story

MOVES = ACT.model_copy(update={"move_job_seconds": 120})


def broken(event: Any = None, **around: Any) -> Story:
    return Story(event or xid(79), policy=MOVES).isolated().amid(**around)


def took(*seconds: float, rung: Action = Action.REBOOT) -> dict[Action, tuple[float, ...]]:
    return {rung: seconds}
