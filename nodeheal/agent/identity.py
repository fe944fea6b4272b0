"""Who this node is, in everything that it says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import Provider, SchedulerKind


@dataclass(frozen=True)
class Identity:
    """Who speaks."""

    node_id: str
    cluster: str
    pool: str
    provider: Provider
    product: str | None = None  # of its accelerators, where the operator has said
    labels: Mapping[str, str] = field(default_factory=dict)  # what it shares with others: rack, switch, fabric
    scheduler: SchedulerKind = SchedulerKind.ECS  # which one places work on it
