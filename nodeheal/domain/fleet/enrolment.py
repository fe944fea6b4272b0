"""Enrolling a node: what an operator says of it, and where the mark must stand that lets nodeheal act on it."""

import re
from dataclasses import dataclass
from enum import StrEnum

from nodeheal.contract.vocabulary import Provider

# What a tag's value may hold in every registry.
_RACK = re.compile(r"[A-Za-z0-9 _.:/=+@-]{1,128}")
_MACHINE = re.compile(r"(mi|i)-[0-9A-Za-z]+")
_PROVIDERS = {"mi": Provider.hybrid, "i": Provider.ec2}


class Registry(StrEnum):
    """Who knows a node by a name of its own, and asks for the mark before it takes an order."""

    SSM = "SSM managed node"
    EC2 = "EC2 instance"
    ECS = "ECS container instance"


@dataclass(frozen=True)
class Mark:
    """The mark in one registry, and the rack beside it. No name: the registry does not know the node."""

    registry: Registry
    name: str = ""
    is_set: bool = False
    rack: str = ""

    def __str__(self) -> str:
        return f"{self.registry} {self.name}"


@dataclass(frozen=True)
class Enrolment:
    """What an operator says of a node. `pool` and `provider` must be what its own agent says.

    `rack` and `accelerators` None: nothing is said of them. `cluster`: where the node's agent has not said it yet.
    """

    pool: str
    why: str
    provider: Provider | None = None
    is_spare: bool = False
    accelerators: int | None = None
    has_no_job: bool = False  # what the record says of a job is over
    rack: str | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.rack is not None and not _RACK.fullmatch(self.rack):
            raise ValueError(f"rack {self.rack!r}: give 1 to 128 of A-Z a-z 0-9, space and _ . : / = + - @")


def provider_of(node_id: str) -> Provider:
    """Who gives a machine of this id. Raises ValueError, which names it, for what is no such id."""
    found = _MACHINE.fullmatch(node_id)
    if found is None:
        raise ValueError(f"{node_id!r} is no id of a machine: give i-… or mi-…")
    return _PROVIDERS[found[1]]


def registries_of(provider: Provider) -> tuple[Registry, Registry]:
    """Where a node of this provider must carry the mark. SSM sees an EC2 instance's own tags."""
    return (Registry.EC2 if provider is Provider.ec2 else Registry.SSM, Registry.ECS)
