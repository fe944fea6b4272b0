"""How many events of one node are taken: one bad node must not cost more than docs/security.md says."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import TypeVar

from nodeheal.contract.health_event import HealthEvent, NodeFact
from nodeheal.ports import Ports

# An agent sends a finding that repeats once a minute, so that this is a hundred and twenty different ones. What its
# spool has kept while the bus was away comes at once, and counts for itself.
REPORTS_A_MINUTE = 120
LATE_SECONDS = 600
LATE_A_DAY = 2_000
# Of these, the pool's other nodes see the first eighth beside their own faults. Within the breaker's ten minutes one
# node fills 415 of the FAULTS_LOOKED_UP places at most, and so hides nobody who failed with them.
SHOWN_TO_POOL = 8
# Heartbeats come over the bus where a node cannot reach its own item, one a minute.
HEARTBEATS_A_MINUTE = 60
# Boots and answers count apart from reports: a node with many faults can still be healed. A recovery takes a handful.
ANSWERS_A_MINUTE = 60
COUNTED_DAYS = 7

logger = logging.getLogger(__name__)
Fact = TypeVar("Fact", bound=NodeFact)


@dataclass(frozen=True)
class Rate:
    """How many reports of the node were counted in the window of this one, and how many of them are taken."""

    count: int
    limit: int

    @property
    def over(self) -> int:
        """By how many it is over its limit; 0 while it is within."""
        return max(0, self.count - self.limit)

    @property
    def is_shown_to_pool(self) -> bool:
        """Whether decisions about other nodes of the pool see it, too."""
        return self.count <= self.limit // SHOWN_TO_POOL


def rate_of(event: HealthEvent, ports: Ports) -> Rate:
    """Count the report, or the heartbeat."""
    now = ports.clock()
    minute = f"{now:%Y-%m-%dT%H:%M}"
    if event.is_heartbeat:
        return _rate(event, f"heartbeats {minute}", HEARTBEATS_A_MINUTE, ports)
    if event.observed_at < now - timedelta(seconds=LATE_SECONDS):
        return _rate(event, f"{now:%Y-%m-%d}", LATE_A_DAY, ports)
    return _rate(event, minute, REPORTS_A_MINUTE, ports)


def limited(take: Callable[[Fact, Ports], None]) -> Callable[[Fact, Ports], None]:
    """Take at most ANSWERS_A_MINUTE boots and answers of one node. The others are counted, and the first is logged."""

    @wraps(take)
    def take_within_limit(fact: Fact, ports: Ports) -> None:
        over = _rate(fact, f"answers {ports.clock():%Y-%m-%dT%H:%M}", ANSWERS_A_MINUTE, ports).over
        if over == 1:
            logger.warning("more boots and answers than are taken of one node", extra={"node": fact.node_id})
        if over == 0:
            take(fact, ports)

    return take_within_limit


def _rate(fact: NodeFact, window: str, limit: int, ports: Ports) -> Rate:
    return Rate(ports.nodes.count_report(fact.node_id, window, ports.clock() + timedelta(days=COUNTED_DAYS)), limit)
