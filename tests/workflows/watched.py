"""The simulation's invariants over the memory of a story: each write, and each call before it is made, is checked."""

from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

from nodeheal.adapters.memory.fleet_index import MemoryFleetIndex
from nodeheal.domain.fleet.machine import Power
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.simulation.agenda import Agenda, seconds_of
from nodeheal.simulation.chance import Chance
from nodeheal.simulation.index import Index
from nodeheal.simulation.invariants import incidents_end_or_page_in_time
from nodeheal.simulation.seen import Seen
from nodeheal.simulation.setting import CALM
from nodeheal.simulation.stores import SimIncidents, SimNodes, SimOperations
from nodeheal.simulation.trace import Trace
from nodeheal.simulation.watch import Watch
from tests.support.builders import NOW, FrozenClock, memory_ports, scheduler_in

DAYS = 10 * 86_400  # by then everything is due that an invariant gives time for


class AgendaClock(FrozenClock):
    """The clock of an agenda: what must be true by a time is checked when the story comes to it."""

    def __init__(self) -> None:
        self.agenda = Agenda()
        self.agenda.now = seconds_of(NOW)

    def __call__(self) -> datetime:
        return self.agenda.clock()

    def advance(self, seconds: float) -> None:
        self.agenda.run(self.agenda.now + seconds)


class WatchedMemory:
    """Ports in memory, and what the invariants say of them."""

    def __init__(self, clock: AgendaClock, policy: RecoveryPolicy) -> None:
        agenda = clock.agenda
        index = Index(agenda, Chance("a story"), CALM)
        nodes = SimNodes(index)
        incidents, operations = SimIncidents(nodes, index), SimOperations(index, agenda)
        self.ports = replace(
            memory_ports(clock),
            nodes=nodes,
            incidents=incidents,
            operations=operations,
            fleet_index=MemoryFleetIndex(nodes, incidents),
        )
        self._scheduler, self._clock = scheduler_in(self.ports), clock
        self._seen = Seen(agenda, self.ports, nodes, incidents, operations, policy)
        self._seen.missing_unmanaged_tasks = self._missing
        self._seen.unmanaged_tasks_on = lambda node_id: [
            t for at, t in self._scheduler.unmanaged.values() if at == node_id
        ]
        self._watch = Watch(self._seen, Trace(agenda))
        self._stopped: dict[str, UnmanagedTask] = {}
        self._told = 0

    def called(self, call: str, given: tuple[Any, ...]) -> None:
        """A function is about to make this call (`commands.reboot-node`)."""
        watch = self._watch
        match call:
            case "commands.reset-gpu" | "commands.reboot-node":
                watch.acted(call.removeprefix("commands.").partition("-")[0], given[0].node_id, given[0].boot_id)
            case "machines.power" if given[1] is not Power.START:
                watch.acted(given[1].lower(), given[0], "EC2")
            case "machines.terminate_instance":
                watch.acted("replace", given[0].machine_id, "EC2")
            case "machines.launch" if given[1] not in self.ports.machines.tokens:  # type: ignore[attr-defined]
                watch.acted("launch", given[0].machine_id, "EC2")
            case "scheduler.drain_all":
                for node in given[0]:
                    watch.acted("isolate", node.node_id, node.open_incident or "")
            case "scheduler.undrain":
                watch.switched_on(given[0].node_id)
            case "scheduler.start_rank":
                watch.rank_started(given[1])
            case "scheduler.stop_rank":
                watch.rank_asked_to_stop(given[2])
            case "scheduler.stop_unmanaged_task":
                if given[1].task_id in self._scheduler.unmanaged:
                    self._stopped[given[1].task_id] = given[1]
                    watch.unmanaged_task_stopped(given[0].node_id, given[1])
            case "pools.release":
                watch.slot_released(*given)

    def broke(self) -> None:
        """A function has broken."""
        self._seen.struck_at.append(self._clock.agenda.now)

    def wrong(self) -> list[str]:
        """What is new among the violations, each with the name of its invariant.

        Workflows are walked one after the other, so no time is too long for an incident; it ends before all is at rest.
        """
        new = self._watch.violations[self._told :]
        self._told += len(new)
        return [str(one) for one in new if one.invariant != incidents_end_or_page_in_time.__name__]

    def wrong_at_rest(self) -> list[str]:
        """The same, when no workflow is at work any more, after days in which nothing happens."""
        self._clock.advance(DAYS)
        self._watch.jobs_ended(())
        incidents = self._seen.incidents.incidents.values()
        late = [incidents_end_or_page_in_time(self._seen, one.incident_id, one.turn) for one in incidents]
        return [*self.wrong(), *map(str, chain(*late))]

    def _missing(self, reason: str) -> list[UnmanagedTask]:
        ended = [task for name, task in self._stopped.items() if self._scheduler.unmanaged_ended.get(name) == reason]
        begun = [task.mark for _, task in self._scheduler.unmanaged_started]
        return [task for task in ended if begun.count(task.mark) != 1]

    def _unmanaged_on(self, node_id: str) -> list[UnmanagedTask]:
        return [task for where, task in self._scheduler.unmanaged.values() if where == node_id]
