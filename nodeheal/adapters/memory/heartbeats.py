"""Implements Heartbeats in memory."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from nodeheal.domain.fleet.liveness import Heartbeat


@dataclass
class MemoryHeartbeats:
    """Implements Heartbeats. `beats`: the machines' heartbeats, by machine."""

    beats: dict[str, Heartbeat] = field(default_factory=dict)

    def newest(self) -> Mapping[str, Heartbeat]:
        return {
            heartbeat.machine_id: heartbeat
            for heartbeat in sorted(self.beats.values(), key=lambda heartbeat: heartbeat.at)
        }

    def of(self, machine_ids: Collection[str]) -> Mapping[str, Heartbeat]:
        return {name: heartbeat for name, heartbeat in self.newest().items() if name in machine_ids}

    def want(self, heartbeat: Heartbeat, every_seconds: float) -> None:
        if heartbeat.who in self.beats:
            self.beats[heartbeat.who] = replace(self.beats[heartbeat.who], wanted_seconds=every_seconds)
