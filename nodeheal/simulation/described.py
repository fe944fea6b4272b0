"""Keeps the scheduler's view of tasks: what their machines have reported, and for an hour after their ends."""

from dataclasses import dataclass

from nodeheal.domain.jobs.job import GangTask
from nodeheal.ports.scheduler import RankStatus, TaskChange
from nodeheal.services.jobs.ask_after_ranks import KEPT
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.ground_truth import GroundTruth


@dataclass(frozen=True, slots=True)
class _Known:
    change: TaskChange
    node: GroundTruth


class Described:
    """Receives every change at once, independently of the bus."""

    def __init__(self, agenda: Agenda, fleet: Fleet) -> None:
        self._agenda, self._fleet = agenda, fleet
        self._known: dict[str, _Known] = {}

    def note(self, change: TaskChange, node: GroundTruth) -> None:
        """Record a task's state from its machine."""
        self._known[change.task_id] = _Known(change, node)
        if change.status == "STOPPED":
            self._agenda.after(KEPT.total_seconds(), lambda: self._forget(change.task_id))

    def _forget(self, task_id: str) -> None:
        self._known.pop(task_id, None)

    def see(self, task: GangTask) -> RankStatus:
        """Return the task as the scheduler would describe it."""
        known = self._known.get(task.task_id)
        if known is None:
            machine = self._fleet.nodes.get(task.node_id)
            return RankStatus(task.task_id, "MISSING", is_connected=machine is not None and machine.is_up)
        change = known.change
        is_connected = known.node.is_up and not known.node.is_gone
        return RankStatus(
            task.task_id,
            change.status,
            is_connected,
            change.exit_code,
            change.stop_reason,
            change.stopped_at,
            change.started_at,
            change.end_causes,
        )
