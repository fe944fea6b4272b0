"""How many events of one node are taken: one bad node must not cost more than docs/security.md says."""

import logging
from collections.abc import Callable
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
# Boots and answers count apart from reports: a node with many faults can still be healed. A recovery takes a handful.
ANSWERS_A_MINUTE = 60
COUNTED_DAYS = 7

logger = logging.getLogger(__name__)
Fact = TypeVar("Fact", bound=NodeFact)


def reports_over_limit(event: HealthEvent, ports: Ports) -> int:
    """Count the report; by how many the node is over its limit now, 0 while it is within."""
    now = ports.clock()
    if event.observed_at < now - timedelta(seconds=LATE_SECONDS):
        return _over(event, f"{now:%Y-%m-%d}", LATE_A_DAY, ports)
    return _over(event, f"{now:%Y-%m-%dT%H:%M}", REPORTS_A_MINUTE, ports)


def limited(take: Callable[[Fact, Ports], None]) -> Callable[[Fact, Ports], None]:
    """Take at most ANSWERS_A_MINUTE boots and answers of one node. The others are counted, and the first is logged."""

    @wraps(take)
    def take_within_limit(fact: Fact, ports: Ports) -> None:
        over = _over(fact, f"answers {ports.clock():%Y-%m-%dT%H:%M}", ANSWERS_A_MINUTE, ports)
        if over == 1:
            logger.warning("more boots and answers than are taken of one node", extra={"node": fact.node_id})
        if over == 0:
            take(fact, ports)

    return take_within_limit


def _over(fact: NodeFact, window: str, limit: int, ports: Ports) -> int:
    count = ports.nodes.count_report(fact.node_id, window, ports.clock() + timedelta(days=COUNTED_DAYS))
    return max(0, count - limit)
