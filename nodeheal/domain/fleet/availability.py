"""Whether a job can start on a node, in one word, as sinfo has idle, alloc and drain."""

from collections.abc import Iterable
from datetime import datetime

from nodeheal.contract.vocabulary import Availability, NodeState
from nodeheal.domain.fleet.liveness import NodeLiveness
from nodeheal.domain.fleet.node import ABSENT, OUT_OF_SERVICE, Node
from nodeheal.domain.fleet.pool import AcceleratorCount
from nodeheal.domain.recovery.incident import Incident

HELD = frozenset({Availability.SUSPECT, Availability.DRAINING})
OUT = frozenset({Availability.DRAINED, *(Availability(state) for state in OUT_OF_SERVICE)})


def availability(
    node: Node | NodeLiveness, incident: Incident | None, now: datetime, *, starts_jobs: bool
) -> Availability:
    """Return the word for a node. `incident`: its open one. `starts_jobs`: nodeheal starts all jobs there."""
    is_drain = incident is not None and incident.is_drain
    if node.state in OUT_OF_SERVICE:
        return Availability.DRAINED if is_drain else Availability(node.state)
    if node.state in (NodeState.RETIRED, NodeState.ENROLLED, NodeState.UNENROLLED):
        return Availability(node.state)
    if node.open_incident is not None or node.state is NodeState.SUSPECT:
        return Availability.DRAINING if is_drain else Availability.SUSPECT
    if node.state is NodeState.PROBATION and not node.is_past_probation(now):
        return Availability.PROBATION
    if node.job_id or node.claimed_by:
        return Availability.BUSY
    return Availability.FREE if starts_jobs else Availability.UP


def count_accelerators(nodes: Iterable[NodeLiveness], now: datetime) -> AcceleratorCount:
    """Count the accelerators of nodes that are there: not of one that is retired, or has never reported.

    Their incidents are not read: a node of one is held or out of service, whatever it is about.
    """
    there = [node for node in nodes if node.state not in ABSENT]
    serving = [node for node in there if availability(node, None, now, starts_jobs=True) not in HELD | OUT]
    return AcceleratorCount(sum(node.accelerators for node in there), sum(node.accelerators for node in serving))
