"""Signs of life in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nodeheal.domain.fleet.liveness import Heartbeat


@dataclass
class MemoryHeartbeats:
    """Heartbeats. `beats`: what machines have written, by who they are."""

    beats: dict[str, Heartbeat] = field(default_factory=dict)

    def newest(self) -> Mapping[str, Heartbeat]:
        return {beat.machine_id: beat for beat in sorted(self.beats.values(), key=lambda beat: beat.at)}

    def of(self, machine_id: str) -> Heartbeat | None:
        return self.newest().get(machine_id)

    def want(self, beat: Heartbeat, every_seconds: float) -> None:
        if beat.who in self.beats:
            self.beats[beat.who] = replace(self.beats[beat.who], wanted_seconds=every_seconds)
