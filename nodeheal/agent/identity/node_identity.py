"""Describes this node, for all events that it sends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import Provider, SchedulerKind


@dataclass(frozen=True)
class Identity:
    """The identity of this node."""

    node_id: str
    cluster: str
    pool: str
    provider: Provider
    scheduler: SchedulerKind  # which one places work on this node
    product: str | None = None  # of its accelerators, where the operator has set it
    labels: Mapping[str, str] = field(default_factory=dict)  # what it shares with other nodes: rack, switch, fabric
