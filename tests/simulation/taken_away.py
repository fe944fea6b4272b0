"""How guards are taken away from the simulation's own run: what the cases of the invariants do to it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.memory.stores import MemoryAttemptLedger, MemoryPoolStore
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.fleet.node import BootView, Node
from nodeheal.domain.operation import Operation
from nodeheal.ports.commands import Command
from nodeheal.simulation.slurm import SlurmCluster
from nodeheal.simulation.stores import SimIncidents
from tests.without import without

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]


def twice(node: Node, operation: Operation, leaves: Any, ports: Any) -> str:
    ports.commands.send(node, Command("reboot-node"), operation.deadline_at)
    return str(ports.commands.send(node, Command("reboot-node"), operation.deadline_at))


def claims_for_anybody(self: MemoryPoolStore, pool: str, node_id: str, slots: int) -> bool:
    held = self.slots.setdefault(pool, [])
    if node_id not in held:
        held.append(node_id)
    return True


def no_boot_is_told_from_another(patch: Patch) -> None:
    patch.setattr(Node, "view", lambda *_: BootView.CURRENT)
    patch.setattr(Node, "booted", lambda self, *_: self)


def every_attempt_is_granted(patch: Patch) -> None:
    patch.setattr("nodeheal.domain.recovery.ladder.spent_reason", lambda rung, say: "")
    patch.setattr(MemoryAttemptLedger, "reserve", lambda *_: (True, 1))


_requeue = SlurmCluster.requeue


def requeued_wherever_it_is(self: SlurmCluster, job_id: str, node_id: str, restarts: int, *, is_held: bool) -> bool:
    """Sent once more when the first order has been carried out: the job's restarts are those of now."""
    is_done = _requeue(self, job_id, node_id, restarts, is_held=is_held)
    self.jobs[job_id].is_completing = False
    return _requeue(self, job_id, node_id, restarts + 1, is_held=is_held) or is_done


_finish = SimIncidents.finish


def all_is_closed(self: SimIncidents, incident: Any) -> None:
    _finish(self, replace(incident, state=IncidentState.CLOSED))


def cut(function: Callable[..., Any], guard: str, becomes: str = "False") -> Break:
    def take_away(patch: Patch) -> None:
        with without(function, guard, becomes):
            code = function.__code__
        patch.setattr(function, "__code__", code)

    return take_away


def set_to(*pairs: tuple[str, Any]) -> Break:
    def take_away(patch: Patch) -> None:
        for where, what in pairs:
            patch.setattr(where, what)

    return take_away
