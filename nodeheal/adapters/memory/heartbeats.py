"""Implements Heartbeats in memory."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodeheal.contract.agent_pod import AgentPod
from nodeheal.domain.fleet.liveness import Heartbeat


@dataclass
class MemoryHeartbeats:
    """Implements Heartbeats. `beats`: the machines' heartbeats, by machine."""

    beats: dict[str, Heartbeat] = field(default_factory=dict)
    pods: dict[str, AgentPod] = field(default_factory=dict)  # by machine

    def newest(self) -> Mapping[str, Heartbeat]:
        machines = {pod: machine for machine, pod in self.pods.items()}
        placed = (
            heartbeat if heartbeat.pod is None else replace(heartbeat, pod_machine=machines.get(heartbeat.pod, ""))
            for heartbeat in sorted(self.beats.values(), key=lambda heartbeat: heartbeat.at)
        )
        return {heartbeat.machine_id or heartbeat.who: heartbeat for heartbeat in placed}

    def of(self, machine_ids: Collection[str]) -> Mapping[str, Heartbeat]:
        return {name: heartbeat for name, heartbeat in self.newest().items() if name in machine_ids}

    def place(self, pod: AgentPod, machine_id: str, until: datetime) -> None:
        self.pods[machine_id] = pod

    def want(self, heartbeat: Heartbeat, every_seconds: float) -> None:
        if heartbeat.who in self.beats:
            self.beats[heartbeat.who] = replace(self.beats[heartbeat.who], wanted_seconds=every_seconds)
