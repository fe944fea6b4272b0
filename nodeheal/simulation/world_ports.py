"""Creates every port of one pool's world: the memory stores, and simulations of what acts."""

from dataclasses import dataclass, fields, replace
from typing import Any

from nodeheal.adapters.memory.enrolment_tags import MemoryEnrolmentTags
from nodeheal.adapters.memory.evidence import sign_upload
from nodeheal.adapters.memory.owners import MemoryConfirmations
from nodeheal.adapters.memory.stores import (
    MemoryAttemptLedger,
    MemoryHardwareStore,
    MemoryJobFindings,
    MemoryPauseStore,
    MemoryRecordsEpoch,
)
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import CAPABILITIES, Scheduler
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance
from nodeheal.simulation.cloud import SimCommands, SimLivenessProbes, SimNotifier, SimScheduler, SimWorkflows, Throttles
from nodeheal.simulation.executions import Executions
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.hazards import FaultInjectingPort, Injector
from nodeheal.simulation.index import Index
from nodeheal.simulation.job_stores import SimJobNotes, SimJobs
from nodeheal.simulation.kubernetes import KubernetesCluster, SimKubernetes
from nodeheal.simulation.machines import SimMachines
from nodeheal.simulation.setting import Setting, SlurmJobs
from nodeheal.simulation.slurm import SimSlurm, SlurmCluster
from nodeheal.simulation.stores import SimFleetIndex, SimHeartbeats, SimIncidents, SimNodes, SimOperations, SimPools
from nodeheal.simulation.trace import Trace

# Ports that are read-only functions, or values: no failure is injected.
# The mark of the records is no record: one that is not renewed is renewed a minute later.
_PLAIN = ("channels", "clock", "console_links", "decide", "epoch", "sign_upload", "has_confirmed")
_PLAIN_OF_SCHEDULER = ("placements_of", "rank_statuses")  # they only read, however many nodes they are asked about


@dataclass(frozen=True)
class WorldPorts:
    """The ports that the world itself uses, by their concrete types, and all of them for services."""

    nodes: SimNodes
    incidents: SimIncidents
    operations: SimOperations
    jobs: SimJobs
    pools: SimPools
    scheduler: SimScheduler
    commands: SimCommands
    notifier: SimNotifier
    machines: SimMachines
    raw: Ports
    index: Index
    cluster: SlurmCluster | KubernetesCluster | None = None  # the scheduler's, where that is Slurm or Kubernetes


def world_ports(
    setting: Setting,
    agenda: Agenda,
    chance: Chance,
    trace: Trace,
    throttles: Throttles,
    fleet: Fleet,
    executions: Executions,
) -> WorldPorts:
    """Create the ports of one world."""
    index = Index(agenda, chance, setting.cloud)
    nodes, jobs, pools = SimNodes(index), SimJobs(index), SimPools()
    operations = SimOperations(index, agenda)
    incidents = SimIncidents(nodes, index)
    cluster: SlurmCluster | KubernetesCluster | None = None
    scheduler = SimScheduler(throttles)
    if isinstance(setting.cluster, SlurmJobs):
        cluster = SlurmCluster(setting.cluster, agenda, chance, trace, fleet)
        scheduler = SimSlurm(throttles, cluster)
    elif setting.cluster is not None:
        cluster = KubernetesCluster(setting.cluster, agenda, chance, trace, fleet)
        scheduler = SimKubernetes(throttles, cluster)
    commands, notifier = SimCommands(throttles, fleet), SimNotifier(agenda)
    machines = SimMachines(throttles, fleet, agenda, chance)
    raw = Ports(
        nodes=nodes,
        hardware=MemoryHardwareStore(),
        incidents=incidents,
        attempts=MemoryAttemptLedger(agenda.clock),
        pools=pools,
        pauses=MemoryPauseStore(),
        operations=operations,
        jobs=jobs,
        job_notes=SimJobNotes(jobs),
        job_findings=MemoryJobFindings(),
        schedulers={setting.scheduler: scheduler.as_scheduler(setting.scheduler)},
        commands=commands,
        machines=machines,
        hyperpod=machines,  # no node here is HyperPod's
        workflows=SimWorkflows(throttles, executions),
        notifier=notifier,
        fleet_index=SimFleetIndex(nodes, incidents, index),
        heartbeats=SimHeartbeats(fleet),
        epoch=MemoryRecordsEpoch(),
        enrolment_tags=MemoryEnrolmentTags(),
        liveness_probes=SimLivenessProbes(fleet, throttles),
        sign_upload=sign_upload,
        has_confirmed=MemoryConfirmations(),
        clock=agenda.clock,
    )
    return WorldPorts(
        nodes, incidents, operations, jobs, pools, scheduler, commands, notifier, machines, raw, index, cluster
    )


def with_fault_injection(raw: Ports, injector: Injector) -> Ports:
    """Return the same ports with failure injection at each call."""
    seams: dict[str, Any] = {field.name: getattr(raw, field.name) for field in fields(Ports)}
    for name in sorted(seams.keys() - {*_PLAIN, "schedulers"}):
        seams[name] = FaultInjectingPort(name, seams[name], injector)
    seams["schedulers"] = {kind: _with_faults(scheduler, injector) for kind, scheduler in raw.schedulers.items()}
    return Ports(**seams)


def _with_faults(scheduler: Scheduler, injector: Injector) -> Scheduler:
    """Return the scheduler with failure injection; an object that is several capabilities stays one."""
    can: dict[str, Any] = {name: port for name in CAPABILITIES if (port := getattr(scheduler, name)) is not None}
    seams: dict[int, Any] = {}
    for capability in can.values():
        port = capability.with_faults(injector) if isinstance(capability, SimKubernetes) else capability
        seams[id(capability)] = FaultInjectingPort("scheduler", port, injector, _PLAIN_OF_SCHEDULER)
    return replace(scheduler, **{name: seams[id(capability)] for name, capability in can.items()})
