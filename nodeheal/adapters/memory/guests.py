"""Guests in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeheal.domain.errors import PlacementRefused
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.ports import Seat


@dataclass
class MemoryGuests:
    """Guests. `running` holds (node, guest) by task; `ended` why each other one ended; `refuses`, why none starts."""

    running: dict[str, tuple[str, UnmanagedTask]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    started: list[tuple[str, UnmanagedTask]] = field(default_factory=list)
    refuses: str = ""

    def on(self, node: Node, seat: Seat) -> Sequence[UnmanagedTask]:
        return [guest for where, guest in self.running.values() if where == node.node_id]

    def stop(self, node: Node, guest: UnmanagedTask, reason: str) -> bool:
        if self.running.pop(guest.task_id, None) is not None:
            self.ended[guest.task_id] = reason
        return self.ended.get(guest.task_id) == reason

    def start(self, node: Node, seat: Seat, guest: UnmanagedTask) -> str:
        successor = f"successor-of-{guest.short_id}"
        if any(known.mark == guest.mark for _, known in self.started):
            return successor
        if self.refuses:
            raise PlacementRefused(self.refuses)
        self.started.append((node.node_id, guest))
        return successor
