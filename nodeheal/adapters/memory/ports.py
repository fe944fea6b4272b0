"""A whole world in memory."""

from nodeheal.adapters.memory.machines import MemoryMachines
from nodeheal.adapters.memory.stores import (
    MemoryAttemptLedger,
    MemoryDisruptionBudget,
    MemoryIncidentStore,
    MemoryJobStore,
    MemoryNodeStore,
    MemoryWaitStore,
)
from nodeheal.adapters.memory.world import MemoryMessenger, MemoryNodeCommands, MemoryScheduler, MemoryWorkflows
from nodeheal.ports import Clock, Ports


def memory_ports(clock: Clock) -> Ports:
    """Every port over dictionaries, telling the time by `clock`."""
    nodes = MemoryNodeStore()
    return Ports(
        nodes=nodes,
        incidents=MemoryIncidentStore(nodes),
        attempts=MemoryAttemptLedger(clock),
        budget=MemoryDisruptionBudget(),
        waits=MemoryWaitStore(),
        jobs=MemoryJobStore(),
        scheduler=MemoryScheduler(),
        commands=MemoryNodeCommands(),
        machines=MemoryMachines(),
        workflows=MemoryWorkflows(),
        messenger=MemoryMessenger(),
        clock=clock,
    )
