"""Creates all ports in memory."""

from nodeheal.adapters.memory.enrolment_tags import MemoryEnrolmentTags
from nodeheal.adapters.memory.evidence import sign_upload
from nodeheal.adapters.memory.fleet_index import MemoryFleetIndex, MemoryLivenessProbes
from nodeheal.adapters.memory.heartbeats import MemoryHeartbeats
from nodeheal.adapters.memory.machines import MemoryMachines
from nodeheal.adapters.memory.owners import MemoryConfirmations
from nodeheal.adapters.memory.stores import (
    MemoryAttemptLedger,
    MemoryHardwareStore,
    MemoryIncidentStore,
    MemoryJobFindings,
    MemoryJobNotes,
    MemoryJobStore,
    MemoryNodeStore,
    MemoryOperationStore,
    MemoryPauseStore,
    MemoryPoolStore,
    MemoryRecordsEpoch,
)
from nodeheal.adapters.memory.world import MemoryNodeCommands, MemoryNotifier, MemoryScheduler, MemoryWorkflows
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.ports import Ports
from nodeheal.ports.clock import Clock


def memory_ports(clock: Clock) -> Ports:
    """Create every port over dictionaries, with `clock` as the time."""
    nodes = MemoryNodeStore()
    incidents = MemoryIncidentStore(nodes)
    jobs = MemoryJobStore()
    commands = MemoryNodeCommands()
    scheduler = MemoryScheduler()
    return Ports(
        nodes=nodes,
        hardware=MemoryHardwareStore(),
        incidents=incidents,
        attempts=MemoryAttemptLedger(clock),
        pools=MemoryPoolStore(),
        pauses=MemoryPauseStore(),
        operations=MemoryOperationStore(),
        jobs=jobs,
        job_notes=MemoryJobNotes(jobs),
        job_findings=MemoryJobFindings(),
        schedulers={kind: scheduler.as_scheduler(kind) for kind in SchedulerKind},
        commands=commands,
        machines=MemoryMachines(),
        hyperpod=MemoryMachines(),
        workflows=MemoryWorkflows(),
        notifier=MemoryNotifier(clock),
        fleet_index=MemoryFleetIndex(nodes, incidents),
        heartbeats=MemoryHeartbeats(),
        epoch=MemoryRecordsEpoch(),
        enrolment_tags=MemoryEnrolmentTags(),
        liveness_probes=MemoryLivenessProbes(),
        sign_upload=sign_upload,
        has_confirmed=MemoryConfirmations(),
        clock=clock,
    )
