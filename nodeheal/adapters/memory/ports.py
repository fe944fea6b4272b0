"""A whole world in memory."""

from nodeheal.adapters.memory.evidence import sign_upload
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
        workflows=MemoryWorkflows(),
        messenger=MemoryMessenger(),
        sign_upload=sign_upload,
        clock=clock,
    )
