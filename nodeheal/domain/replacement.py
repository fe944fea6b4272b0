"""Knobs of replacing machines."""

from enum import StrEnum

from pydantic import Field

from nodeheal.contract.health_event import Frozen, Word
from nodeheal.domain.machine import Owner


class InGroup(StrEnum):
    """How a machine of an Auto Scaling group is given up."""

    terminate = "terminate"
    mark_unhealthy = "mark_unhealthy"


class Replacement(Frozen):
    """How nodes of a pool are replaced. Hybrid nodes are always swapped for a warm spare."""

    max_nodes: int = Field(default=1, ge=1, description="EC2 nodes of the pool being replaced at once")
    prefer_spare: bool = Field(
        default=False, description="EC2: take a warm spare of the pool first, and launch only where there is none"
    )
    in_group: InGroup = Field(
        default=InGroup.terminate,
        description="in an Auto Scaling group: terminate now, or mark unhealthy and leave the rest to the group",
    )
    terminate_first: bool = Field(
        default=False,
        description="without a group: give the broken machine up before its successor is launched, as a full "
        "reservation or capacity block demands; there is no way back from it",
    )
    subnets: tuple[Word, ...] = Field(
        default=(),
        max_length=4,
        description="without a group: where else to launch, in order, when there is no capacity",
    )
    instance_types: tuple[Word, ...] = Field(
        default=(),
        max_length=2,
        description="without a group: what else to launch, in order, when there is no capacity",
    )
    accept_owners: tuple[Owner, ...] = Field(
        default=(), description="others that may repair this pool's nodes beside nodeheal; by default it then keeps off"
    )
