"""Enrolment of a node: what an operator states about it, and where it must be tagged so that nodeheal may act on it."""

import re
from dataclasses import dataclass
from enum import StrEnum

from nodeheal.contract.vocabulary import Provider, SchedulerKind

# What a tag's value may hold in every registry.
_RACK = re.compile(r"[A-Za-z0-9 _.:/=+@-]{1,128}")
_MACHINE = re.compile(r"(mi|i)-[0-9A-Za-z]+")
_PROVIDERS = {"mi": Provider.hybrid, "i": Provider.ec2}


class Registry(StrEnum):
    """A service that has its own name for a node, and requires the tag before it accepts a command."""

    SSM = "SSM managed node"
    EC2 = "EC2 instance"
    SCHEDULER = "node of the scheduler"


@dataclass(frozen=True)
class EnrolmentTag:
    """The tag in one registry, with the rack. No name: the registry does not know the node."""

    registry: Registry
    name: str = ""
    is_set: bool = False
    rack: str = ""
    called: str = ""  # what a scheduler calls a node of its own

    @property
    def kind(self) -> str:
        """What bears the mark, in the words of its registry."""
        return self.called or self.registry.value

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Enrolment:
    """What an operator states about a node. `pool` and `provider` must equal what the node's agent reports.

    `rack` and `accelerators` None: not stated. `cluster` and `scheduler`: where the node's agent has not reported them.
    """

    pool: str
    why: str
    provider: Provider | None = None
    is_spare: bool = False
    accelerators: int | None = None
    has_no_job: bool = False  # what the record says of a job is over
    rack: str | None = None
    cluster: str | None = None
    scheduler: SchedulerKind | None = None

    def __post_init__(self) -> None:
        if self.rack is not None and not _RACK.fullmatch(self.rack):
            raise ValueError(f"rack {self.rack!r}: give 1 to 128 of A-Z a-z 0-9, space and _ . : / = + - @")


def provider_of(node_id: str) -> Provider:
    """Returns the provider of a machine by its id. Raises ValueError for another kind of id."""
    match = _MACHINE.fullmatch(node_id)
    if match is None:
        raise ValueError(f"{node_id!r} is not the id of a machine: give i-… or mi-…")
    return _PROVIDERS[match[1]]


def registries_of(provider: Provider) -> tuple[Registry, ...]:
    """Returns where a node of this provider must be tagged. SSM reads an EC2 instance's own tags; the settings name
    HyperPod's clusters.
    """
    machine = {Provider.ec2: (Registry.EC2,), Provider.hybrid: (Registry.SSM,)}.get(provider, ())
    return (*machine, Registry.SCHEDULER)
