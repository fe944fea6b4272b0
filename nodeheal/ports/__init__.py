"""What the services need of the world. Each port says what it promises; adapters say how.

An adapter raises `NotAccepted` where the other side provably did not take a call. Anything else that goes wrong is a
surprise and is raised as it comes: the caller must then look before it acts again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nodeheal.contract.names import EMAIL_CHANNEL
from nodeheal.contract.steps import DecideRequest, Decision
from nodeheal.contract.vocabulary import ChannelKind, Provider, SchedulerKind
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.review.console_links import NO_LINKS, ConsoleLinks
from nodeheal.ports.clock import Clock
from nodeheal.ports.commands import NodeCommands, SignUpload
from nodeheal.ports.compute import EnrolmentTags, Machines, Workflows
from nodeheal.ports.liveness import Heartbeats, LivenessProbes
from nodeheal.ports.messaging import HasConfirmed, Notifier
from nodeheal.ports.scheduler import GangLauncher, JobLogs, Scheduler, TaskDefinitions
from nodeheal.ports.storage import (
    AttemptLedger,
    FleetIndex,
    HardwareStore,
    IncidentStore,
    JobFindings,
    JobNotes,
    JobStore,
    NodeStore,
    OperationStore,
    PauseStore,
    PoolStore,
    RecordsEpoch,
)


@dataclass(frozen=True)
class Ports:
    """All of them, as a service is handed them. A service uses the few it names."""

    nodes: NodeStore
    hardware: HardwareStore
    incidents: IncidentStore
    attempts: AttemptLedger
    pools: PoolStore
    pauses: PauseStore
    operations: OperationStore
    jobs: JobStore
    job_notes: JobNotes
    job_findings: JobFindings
    schedulers: Mapping[SchedulerKind, Scheduler]  # those that this deployment serves
    commands: NodeCommands
    machines: Machines  # of EC2
    hyperpod: Machines  # of the HyperPod clusters that this deployment serves
    workflows: Workflows
    notifier: Notifier
    fleet_index: FleetIndex
    heartbeats: Heartbeats
    epoch: RecordsEpoch
    enrolment_tags: EnrolmentTags
    liveness_probes: LivenessProbes
    sign_upload: SignUpload
    has_confirmed: HasConfirmed
    clock: Clock
    console_links: ConsoleLinks = NO_LINKS
    # The channels that this deployment has, by name.
    channels: Mapping[str, ChannelKind] = field(default_factory=lambda: {EMAIL_CHANNEL: ChannelKind.email})
    # The next decision, where the function that ends a step makes it. By default it leaves that to the workflow.
    decide: Callable[[DecideRequest], Decision | None] = lambda request: None

    def machines_of(self, node: Node) -> Machines:
        """The machines of the node's provider. Hybrid nodes have none: EC2 knows nothing of them."""
        return self.hyperpod if node.provider is Provider.hyperpod else self.machines

    def scheduler_of(self, node: Node) -> Scheduler:
        """The scheduler that the node has. Raises NotFound where this deployment does not serve it."""
        return self._scheduler(node.cluster.kind, node.node_id)

    def launcher_for(self, job: Job) -> GangLauncher:
        """What starts the job's ranks. Raises NotFound where this deployment does not serve it, or it starts none."""
        launcher = self._scheduler(job.cluster.kind, job.job_id).launcher
        if launcher is None:
            raise NotFound(f"{job.job_id} has the scheduler {job.cluster.kind}, for which nodeheal starts no jobs")
        return launcher

    def definitions_in(self, cluster: Cluster) -> TaskDefinitions:
        """What the cluster's jobs are made from. Raises ValueError where its scheduler takes jobs by itself."""
        scheduler = self._scheduler(cluster.kind, cluster.name)
        if scheduler.definitions is None:
            raise ValueError(scheduler.own_tools.submit or f"nodeheal starts no jobs on {cluster.kind}")
        return scheduler.definitions

    def logs_of(self, job: Job) -> JobLogs:
        """What the job's ranks have written. Raises ValueError where its scheduler keeps that by itself."""
        scheduler = self._scheduler(job.cluster.kind, job.job_id)
        if scheduler.job_logs is None:
            raise ValueError(scheduler.own_tools.logs or f"nodeheal reads no logs of {job.cluster.kind}")
        return scheduler.job_logs

    def launcher_in(self, cluster: Cluster) -> GangLauncher | None:
        """What starts ranks in the cluster; None: nodeheal starts none there."""
        scheduler = self.schedulers.get(cluster.kind)
        return scheduler.launcher if scheduler is not None else None

    def _scheduler(self, kind: SchedulerKind, name: str) -> Scheduler:
        scheduler = self.schedulers.get(kind)
        if scheduler is None:
            raise NotFound(f"{name} has the scheduler {kind}, which this deployment does not serve")
        return scheduler
