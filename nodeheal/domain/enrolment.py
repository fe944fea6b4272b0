"""Enrolling a node: what an operator says of it, and where the mark must stand that lets nodeheal act on it."""

from dataclasses import dataclass
from enum import StrEnum

from nodeheal.contract.vocabulary import Provider


class Registry(StrEnum):
    """Who knows a node by a name of its own, and asks for the mark before it takes an order."""

    SSM = "SSM managed node"
    EC2 = "EC2 instance"
    ECS = "ECS container instance"


@dataclass(frozen=True)
class Mark:
    """The mark in one registry. No name: the registry does not know the node."""

    registry: Registry
    name: str = ""
    is_set: bool = False

    def __str__(self) -> str:
        return f"{self.registry} {self.name}"


@dataclass(frozen=True)
class Enrolment:
    """What an operator says of a node. `pool` and `provider` must be what its own agent says."""

    pool: str
    why: str
    provider: Provider | None = None
    is_spare: bool = False
    accelerators: int | None = None
    has_no_job: bool = False  # what the record says of a job is over


def registries_of(provider: Provider) -> tuple[Registry, Registry]:
    """Where a node of this provider must carry the mark. SSM sees an EC2 instance's own tags."""
    return (Registry.EC2 if provider is Provider.ec2 else Registry.SSM, Registry.ECS)
