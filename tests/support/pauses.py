"""Pauses as a decision is given them."""

from datetime import datetime, timedelta

from nodeheal.contract import names
from nodeheal.domain.fleet.pause import Pause, Pauses
from tests.support.builders import NOW

UNTIL = NOW + timedelta(hours=2)


def pause_of_node(node_id: str, until: datetime = UNTIL, why: str = "new driver") -> Pauses:
    """One node is paused."""
    return Pauses({names.node_pause_sk(node_id): Pause(until, why)})


def pause_of_pool(pool: str = "demo", until: datetime = UNTIL, why: str = "new driver") -> Pauses:
    """One pool is paused."""
    return Pauses({names.pool_pause_sk(pool): Pause(until, why)})
