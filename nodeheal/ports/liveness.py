"""Heartbeats of machines, and others who know whether a node lives."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from nodeheal.domain.fleet.liveness import Heartbeat, ProbeAnswer
from nodeheal.domain.fleet.node import Node


class Heartbeats(Protocol):
    """Knows the heartbeats that machines write down themselves, each its own and nobody another's."""

    def newest(self) -> Mapping[str, Heartbeat]:
        """Every machine's newest one, by its id; eventually consistent. What cannot be read is left out."""

    def of(self, machine_id: str) -> Heartbeat | None:
        """One machine's newest one; eventually consistent. Looks through all: for a person, not for a loop."""

    def want(self, heartbeat: Heartbeat, every_seconds: float) -> None:
        """Ask its machine to keep this interval. It hears of it with its next one; one that is gone, never."""


class LivenessProbes(Protocol):
    """Others who would know whether a node lives: its scheduler, its command channel, its cloud."""

    def ask(self, node: Node) -> Sequence[ProbeAnswer]:
        """What each of them says now. One that knows nothing of the node cannot tell."""
