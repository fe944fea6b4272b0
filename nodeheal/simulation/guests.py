"""Tasks of others: they run on the nodes beside training, and are nobody's of ours."""

from collections.abc import Callable, Sequence

from nodeheal.adapters.memory.guests import MemoryGuests
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.ports import Seat
from nodeheal.simulation.cloud import Throttles
from nodeheal.simulation.true_node import TrueNode


class SimGuests(MemoryGuests):
    """Guests. One that is on a node which goes down is dead, and its owner's to start again."""

    def __init__(self, throttles: Throttles) -> None:
        super().__init__()
        self._throttles = throttles
        self._stopped: dict[str, list[UnmanagedTask]] = {}
        self.on_stop: Callable[[Node, UnmanagedTask], None] = lambda node, guest: None

    def on(self, node: Node, seat: Seat) -> Sequence[UnmanagedTask]:
        self._throttles.take("ecs_reads", "ListTasks")
        there = super().on(node, seat) if self.running else []
        if there:
            self._throttles.take("ecs_reads", "DescribeTasks")
        return there

    def stop(self, node: Node, guest: UnmanagedTask, reason: str) -> bool:
        self._throttles.take("ecs_writes", "StopTask")
        if guest.task_id in self.running:
            self.on_stop(node, guest)
            self._stopped.setdefault(reason, []).append(guest)
        return super().stop(node, guest, reason)

    def start(self, node: Node, seat: Seat, guest: UnmanagedTask) -> str:
        self._throttles.take("ecs_writes", "StartTask")
        return super().start(node, seat, guest)

    def missing(self, reason: str) -> list[UnmanagedTask]:
        """Those that were stopped for this reason, and were not started again."""
        begun = {guest.mark for _, guest in self.started}
        return [guest for guest in self._stopped.get(reason, ()) if guest.mark not in begun]

    def node_down(self, node: TrueNode) -> None:
        """What runs there is dead."""
        for task_id in [name for name, (where, _) in self.running.items() if where == node.node_id]:
            del self.running[task_id]
