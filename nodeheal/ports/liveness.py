"""Heartbeats of machines, and other services that know whether a node is alive."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from nodeheal.contract.agent_pod import AgentPod
from nodeheal.domain.fleet.liveness import Heartbeat, ProbeAnswer
from nodeheal.domain.fleet.node import Node


class Heartbeats(Protocol):
    """Knows the heartbeats of machines. Each machine can write its own only."""

    def newest(self) -> Mapping[str, Heartbeat]:
        """Every machine's newest one, by its id; eventually consistent. What cannot be read is left out, and what a pod
        has written that `place` knows of no machine.
        """

    def of(self, machine_ids: Collection[str]) -> Mapping[str, Heartbeat]:
        """The newest ones of these machines, in few calls; eventually consistent.

        Where the machines' roles are not known it looks through all: for a person, not for a loop.
        """

    def place(self, pod: AgentPod, machine_id: str) -> None:
        """Record that this pod speaks for the machine, as its cluster says; the one before it may still be heard."""

    def want(self, heartbeat: Heartbeat, every_seconds: float) -> None:
        """Asks the machine to use this interval. It gets the request with the answer to its next heartbeat."""


class LivenessProbes(Protocol):
    """Other services that know whether a node is alive: its scheduler, its command channel, its cloud."""

    def ask(self, node: Node) -> Sequence[ProbeAnswer]:
        """Returns what each of them reports now. One that does not know the node reports that it cannot tell."""
