"""Implements Heartbeats in memory."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from nodeheal.contract import agent_pod
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.domain.fleet.liveness import Heartbeat


@dataclass
class MemoryHeartbeats:
    """Implements Heartbeats. `beats`: the machines' heartbeats, by machine."""

    beats: dict[str, Heartbeat] = field(default_factory=dict)
    pods: dict[str, tuple[AgentPod, ...]] = field(default_factory=dict)  # by machine: the last two

    def newest(self) -> Mapping[str, Heartbeat]:
        machines = {pod.signer: machine for machine, pods in self.pods.items() for pod in pods}
        placed = (
            replace(heartbeat, pod_machine=machines.get(heartbeat.who, ""))
            for heartbeat in sorted(self.beats.values(), key=lambda heartbeat: heartbeat.at)
            if heartbeat.who in machines or not heartbeat.who.startswith(agent_pod.PREFIX)
        )
        return {heartbeat.machine_id: heartbeat for heartbeat in placed}

    def of(self, machine_ids: Collection[str]) -> Mapping[str, Heartbeat]:
        return {name: heartbeat for name, heartbeat in self.newest().items() if name in machine_ids}

    def place(self, pod: AgentPod, machine_id: str) -> None:
        before = [known for known in self.pods.get(machine_id, ()) if known != pod]
        self.pods[machine_id] = (pod, *before[:1])

    def want(self, heartbeat: Heartbeat, every_seconds: float) -> None:
        if heartbeat.who in self.beats:
            self.beats[heartbeat.who] = replace(self.beats[heartbeat.who], wanted_seconds=every_seconds)
