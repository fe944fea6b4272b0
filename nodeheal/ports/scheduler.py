"""What the services need of a scheduler, whichever one a node has: a gate, and what else its scheduler can do.

What a scheduler cannot do is absent from its record `Scheduler`, and never an empty answer. An adapter hands on its
scheduler's events as `TaskChange`, and as drafts of health events (`ports.signals`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.vocabulary import EndCause, SchedulerKind
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.holder import Holder
from nodeheal.domain.fleet.liveness import ProbeAnswer
from nodeheal.domain.fleet.machine import ClusterReplacement, Remediator
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.node_order import NodeOrder
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.jobs.job_log import LogLine, LogLocation, LogPage
from nodeheal.domain.jobs.task_definition import TaskDefinition


@dataclass(frozen=True)
class NodePlacement:
    """A node as its scheduler knows it: under which name, whether it takes new work, and who keeps it from that.

    `held_by` None: nobody does, or the scheduler does not record it.
    """

    name: str
    is_schedulable: bool
    held_by: Holder | None = None


@dataclass(frozen=True)
class Drained:
    """A node that takes no new work now: its name there, and whether any task is still to run on it.

    `tasks`: those of others, where the scheduler has listed them with the drain. `held_by`: who keeps it out of service
    after the drain; None: nodeheal, by this drain.
    """

    placement: str
    has_tasks: bool
    tasks: Sequence[UnmanagedTask] | None = None
    held_by: Holder | None = None


@dataclass(frozen=True)
class RankStatus:
    """A rank as its scheduler has it now. MISSING: the scheduler knows no such task, or knows it no longer."""

    task_id: str
    status: str  # PENDING, RUNNING, STOPPED or MISSING
    is_connected: bool  # whether the scheduler reaches the machine: if not, only STOPPED is certain
    exit_code: int | None = None
    stop_reason: str = ""
    stopped_at: datetime | None = None
    started_at: datetime | None = None
    end_causes: tuple[EndCause, ...] = ()


@dataclass(frozen=True)
class TaskChange:
    """The scheduler reports that a rank is PENDING, RUNNING or STOPPED now."""

    job_id: str
    run: int
    task_id: str
    placement: str
    status: str
    exit_code: int | None
    stop_reason: str
    stopped_at: datetime | None = None
    started_at: datetime | None = None  # when it began to run; None: it has not, or nobody says
    end_causes: tuple[EndCause, ...] = ()


@dataclass(frozen=True)
class SchedulerTraits:
    """How a scheduler behaves by itself; by default it does nothing unasked. Read in `services/scheduling.py` only."""

    restarts_stopped: bool = False  # it starts again by itself, elsewhere, what was stopped
    owner_consents_alone: bool = False  # to stop a workload, the consent of its owner is enough, without the pool's
    fills_idle_nodes: bool = False  # a node in service may be given work at any moment: none is kept as a spare
    checks_new_nodes: bool = False  # it has a node checked before the first job there
    records_holder: bool = False  # it always records which person took a node out of service
    drain_keeps_holder: bool = False  # a drain leaves a node alone that a person has taken, and answers who has it
    runs_commands: bool = False  # it takes commands for its nodes itself
    is_behind_a_machine: bool = False  # a machine of the cluster answers for it, and may be down
    drains_at_once: int | None = None  # drains that a cluster may be asked for at a time; None: any number


class NodeGate(Protocol):
    """Decides whether a node takes new work. Every scheduler has one."""

    def placement_of(self, node: Node) -> NodePlacement:
        """Where the node is now. Raises NotFound."""

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        """Take no new work on these nodes of one cluster, in few calls.

        `placements`: their names, in any order; their ids where nobody has looked before. By node id, those that take
        none now. Repeating it changes nothing. Raises NotFound where the scheduler knows none of them, and NotEnrolled
        where one of them may not be touched.
        """

    def undrain(self, node: Node, placement: NodePlacement) -> Holder | None:
        """Take new work on the node again, and show no incident. Repeating it changes nothing.

        Returns who keeps it from new work all the same; None: nobody, or the scheduler does not record it.
        Raises NotFound, and NotEnrolled where the node may not be touched.
        """


class NodeRegistry(Protocol):
    """A list of nodes that the scheduler's agents have joined, and that can be read and labelled at any time."""

    def names_in_service(self, nodes: Sequence[Node]) -> Sequence[str]:
        """The scheduler's names of these nodes of one cluster, in one call and in no order, if all take new work.

        Empty where one of them does not, or is not known.
        """

    def show_isolation(self, node: Node, placement: NodePlacement, incident_id: str) -> None:
        """Show people at the scheduler which incident the node is isolated for. Nothing is decided by it.

        Raises NotEnrolled where the node may not be touched, and NotAccepted where the call was throttled.
        """


class NodeLivenessProbe(Protocol):
    """Keeps in touch with an agent of the scheduler's own on each node."""

    def liveness(self, node: Node) -> ProbeAnswer:
        """Whether the scheduler reaches its own agent on the node."""


class AgentPods(Protocol):
    """Places nodeheal's agents on nodes, as pods whose AWS sessions are named after the pod and not after a machine."""

    def machine_of(self, pod: AgentPod) -> str | None:
        """The machine that runs this pod of the agent; None: there is no such pod now. Raises NotAccepted."""


class Workloads(Protocol):
    """Manages what runs on a node and nodeheal did not start, and what no service would start again."""

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        """The tasks of others that run on the node; and those that its fault may have ended already, if it knows them.

        These say so by `before`.
        """

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        """Ask it to end, with the grace that its definition gives. False: it had ended otherwise, or is not known.

        Where the scheduler starts it again by itself, it does not as long as the task is held. Asked again with the
        same reason, it answers the same.
        """


class WorkloadRestarter(Protocol):
    """Starts again what `Workloads` has stopped, where the scheduler does not do so by itself."""

    def restart_unmanaged_task(self, node: Node, task: UnmanagedTask) -> str:
        """Start its successor on the node; the successor's id. A successor that exists is not started again.

        Raises NotFound, PlacementRefused.
        """


class GangLauncher(Protocol):
    """Runs the ranks of training jobs, where nodeheal starts them."""

    def placements_of(self, nodes: Sequence[Node]) -> Mapping[str, NodePlacement]:
        """Where many nodes are now, by node id, in few calls. Raises NotFound."""

    def start_rank(self, job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        """Start one rank where `task` says; its id. A caller that repeats this asks `find_ranks` first.

        Raises PlacementRefused.
        """

    def find_ranks(self, job: Job, run: Run) -> Mapping[str, str]:
        """The ids of the run's tasks that were started and live, by their placement."""

    def confirm_ranks(self, job: Job, run: Run, ranks: Sequence[GangTask]) -> Sequence[GangTask]:
        """Those of these ranks whose task is not known to belong to another run, in few calls."""

    def stop_rank(self, cluster: Cluster, task_id: str, reason: str) -> None:
        """Ask the task to end, with the grace that its definition gives. A task that is gone is fine."""

    def live_ranks(self, cluster: Cluster) -> Sequence[TaskChange]:
        """Every rank of the cluster that nodeheal has started, whatever is on record, and that has not ended."""

    def rank_statuses(self, cluster: Cluster, ranks: Sequence[GangTask]) -> Sequence[RankStatus]:
        """How these ranks of one cluster are, in few calls. A rank that it cannot report on is left out."""


class NodeOrders(Protocol):
    """Reads what people order by a node's mark at the scheduler."""

    def pending(self, cluster: Cluster) -> Sequence[NodeOrder]:
        """The orders whose marks stand now, of every machine of the cluster that may have some.

        What a machine's own agent says by the same mark is none. Raises NotFound, NotAccepted.
        """

    def is_limited(self, cluster: Cluster) -> bool:
        """Whether nobody but those who may order can set a mark there now. Raises NotFound, NotAccepted."""


class MachineMaker(Protocol):
    """Makes the machines of its clusters."""

    def have_replaced(self, node: Node, how: ClusterReplacement, others: Collection[str]) -> None:
        """Have the node's cluster replace its machine. Repeating it changes nothing.

        `others`: the addresses of other nodes. Raises NotFound, and PlacementRefused where the cluster cannot, where a
        person has the node, or where the node is said to be at the address of another one.
        """


class NodeConditions(Protocol):
    """Shows at a node, to people and to programs of others, that an accelerator is broken; and knows who acts on what
    others show there.
    """

    def show(self, node: Node, reason: str, message: str) -> None:
        """Show the fault, unless another agent shows what it finds there. Repeating it changes nothing.

        `reason`: a word. Raises NotFound, and NotAccepted where the call was refused.
        """

    def clear(self, node: Node) -> None:
        """Show no fault, where one was shown. Repeating it changes nothing. Raises as `show` does."""

    def remediator_of(self, node: Node) -> tuple[Remediator | None, str]:
        """Who repairs the node by its conditions, and how that is known. None: nobody. Raises NotAccepted."""


class TaskDefinitions(Protocol):
    """Knows the definitions that tasks are started from."""

    def find(self, name: str) -> TaskDefinition:
        """The definition, with its revision. Raises NotFound, and ValueError for one with the execution role in it."""

    def register(self, spec: JobSpec) -> TaskDefinition:
        """A new revision for a job that names an image. Repeating it is harmless: nothing is started by that.

        Raises ValueError for a task role that this deployment does not give to jobs, and for what the scheduler
        refuses.
        """

    def shown(self, spec: JobSpec) -> dict[str, object]:
        """What would be registered, as the scheduler takes it."""


class JobLogs(Protocol):
    """Reads the output of a job's ranks. Only operators use it."""

    def locate(self, job: Job) -> LogLocation:
        """Where the output of the job is kept. Raises NotFound, and says where to look instead."""

    def stream(self, location: LogLocation, job: Job, task: GangTask) -> str:
        """The name of one rank's stream."""

    def read(self, location: LogLocation, stream: str, token: str = "") -> LogPage:
        """What a stream holds since `token` was given out (empty: all of it), oldest first.

        A stream that is not there yet is empty.
        """

    def last(self, location: LogLocation, stream: str, lines: int) -> Sequence[LogLine]:
        """The newest lines of a stream, at most so many, oldest first. A stream that is not there yet is empty."""


@dataclass(frozen=True)
class OwnTools:
    """How people do with the scheduler's own tools what nodeheal leaves to it; empty: nodeheal does it."""

    drain: str = ""
    submit: str = ""
    logs: str = ""


@dataclass(frozen=True)
class Scheduler:
    """A scheduler that a deployment serves, by what it can do. None: it cannot."""

    kind: SchedulerKind
    traits: SchedulerTraits
    gate: NodeGate
    registry: NodeRegistry | None = None
    liveness: NodeLivenessProbe | None = None
    agent_pods: AgentPods | None = None
    workloads: Workloads | None = None
    restarter: WorkloadRestarter | None = None
    launcher: GangLauncher | None = None
    machines: MachineMaker | None = None
    conditions: NodeConditions | None = None
    definitions: TaskDefinitions | None = None
    job_logs: JobLogs | None = None
    orders: NodeOrders | None = None
    own_tools: OwnTools = OwnTools()


# The fields of a scheduler that are ports.
CAPABILITIES = (
    "gate",
    "registry",
    "liveness",
    "agent_pods",
    "workloads",
    "restarter",
    "launcher",
    "machines",
    "conditions",
    "definitions",
    "job_logs",
    "orders",
)
