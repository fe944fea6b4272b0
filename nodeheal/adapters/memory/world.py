"""Implements a scheduler, node commands, workflows and messages in memory, with a record of the calls."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar

from nodeheal.adapters.memory.task_definitions import MemoryJobLogs, MemoryTaskDefinitions
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.job_steps import JobResult
from nodeheal.contract.names import JOB_VARIABLE, RUN_VARIABLE
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.errors import NotEnrolled, NotFound, PlacementRefused
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.holder import HeldByPerson, Holder
from nodeheal.domain.fleet.liveness import ProbeAnswer
from nodeheal.domain.fleet.machine import ClusterReplacement, Remediator
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.node_order import NodeOrder
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports.clock import Clock
from nodeheal.ports.commands import Command, CommandStatus
from nodeheal.ports.compute import Started
from nodeheal.ports.messaging import Delivery, Message, Way
from nodeheal.ports.scheduler import Drained, NodePlacement, RankStatus, Scheduler, SchedulerTraits, TaskChange


@dataclass
class MemoryScheduler:
    """Implements all that a scheduler can do. `draining` contains the drained nodes, `held_by_people` those of them
    that the scheduler knows to be a person's; `tasks` every rank ever started.

    `isolated_by` names the incident for which a node was drained. `statuses` has ranks' states, by task; a missing one
    is as started. `disconnected` contains unreachable placements. `unmanaged` has the running unmanaged tasks, as
    (node, task) by id; `unmanaged_ended` why each ended; `unmanaged_refused` why none starts. `replaced_by_cluster`
    contains the nodes whose machines were to be replaced; `replaces_none` why none is. `ordered`: by marks that stand.
    `conditions` has what each node shows, and `repaired_by` who else repairs nodes of the cluster. `agents` has the
    machines of pods.
    """

    traits: ClassVar[SchedulerTraits] = SchedulerTraits()
    replaces_none: str = ""
    replaced_by_cluster: list[tuple[str, ClusterReplacement]] = field(default_factory=list)
    draining: set[str] = field(default_factory=set)
    held_by_people: set[str] = field(default_factory=set)
    isolated_by: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, GangTask] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    unknown_nodes: set[str] = field(default_factory=set)
    not_enrolled: set[str] = field(default_factory=set)
    statuses: dict[str, RankStatus] = field(default_factory=dict)
    disconnected: set[str] = field(default_factory=set)
    asked_after: list[str] = field(default_factory=list)
    unmanaged: dict[str, tuple[str, UnmanagedTask]] = field(default_factory=dict)
    unmanaged_ended: dict[str, str] = field(default_factory=dict)
    unmanaged_started: list[tuple[str, UnmanagedTask]] = field(default_factory=list)
    unmanaged_refused: str = ""
    ordered: list[NodeOrder] = field(default_factory=list)
    agents: dict[AgentPod, str] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    repaired_by: Remediator | None = None
    series: str = ""  # at the end of each new rank's name: a scheduler gives no name twice, whatever is on record

    def as_scheduler(self, kind: SchedulerKind) -> Scheduler:
        """Return a scheduler that leaves to nodeheal what to start, and makes no machines."""
        return Scheduler(
            kind,
            self.traits,
            self,
            self,
            workloads=self,
            restarter=self,
            launcher=self,
            conditions=self,
            definitions=MemoryTaskDefinitions(),
            job_logs=MemoryJobLogs(),
            orders=self,
            agent_pods=self,
        )

    def placement_of(self, node: Node) -> NodePlacement:
        if node.node_id in self.unknown_nodes:
            raise NotFound(f"{node.node_id} is not in cluster {node.cluster.name}")
        held = HeldByPerson("ada", how="held") if node.node_id in self.held_by_people & self.draining else None
        return NodePlacement(f"placement-of-{node.node_id}", node.node_id not in self.draining, held)

    def placements_of(self, nodes: Sequence[Node]) -> Mapping[str, NodePlacement]:
        return {node.node_id: self.placement_of(node) for node in nodes}

    def names_in_service(self, nodes: Sequence[Node]) -> Sequence[str]:
        in_service = [node for node in nodes if node.node_id not in self.unknown_nodes | self.draining]
        names = [name for node in in_service if (name := f"placement-of-{node.node_id}") not in self.disconnected]
        return names if len(names) == len(nodes) else ()

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        known = [node for node in nodes if node.node_id not in self.unknown_nodes]
        for node in known or nodes:
            self._must_be_ours(node)
        self.draining.update(node.node_id for node in known)
        return {node.node_id: Drained(f"placement-of-{node.node_id}", self._has_tasks(node)) for node in known}

    def _has_tasks(self, node: Node) -> bool:
        """Whether it has tasks: a node with a job has a rank."""
        return node.job_id is not None or any(where == node.node_id for where, _ in self.unmanaged.values())

    def show_isolation(self, node: Node, placement: NodePlacement, incident_id: str) -> None:
        self._must_be_ours(node)
        self.isolated_by[node.node_id] = incident_id

    def undrain(self, node: Node, placement: NodePlacement) -> Holder | None:
        self._must_be_ours(node)
        self.draining.discard(node.node_id)
        self.isolated_by.pop(node.node_id, None)
        return None

    def show(self, node: Node, reason: str, message: str) -> None:
        if node.node_id in self.unknown_nodes:
            raise NotFound(f"{node.node_id} is not in cluster {node.cluster.name}")
        self.conditions[node.node_id] = f"{reason}: {message}"

    def clear(self, node: Node) -> None:
        self.conditions.pop(node.node_id, None)

    def remediator_of(self, node: Node) -> tuple[Remediator | None, str]:
        return self.repaired_by, "the cluster says so" if self.repaired_by else ""

    def _must_be_ours(self, node: Node) -> None:
        MemoryScheduler.placement_of(self, node)  # not counted as a query of its own
        if node.node_id in self.not_enrolled:
            raise NotEnrolled(f"{node.node_id} lacks the operator's tag")

    def have_replaced(self, node: Node, how: ClusterReplacement, others: Collection[str]) -> None:
        if self.replaces_none:
            raise PlacementRefused(self.replaces_none)
        self._must_be_ours(node)
        self.replaced_by_cluster.append((node.node_id, how))

    def machine_of(self, pod: AgentPod) -> str | None:
        return self.agents.get(pod)

    def pending(self, cluster: Cluster) -> Sequence[NodeOrder]:
        return tuple(self.ordered)

    def is_limited(self, cluster: Cluster) -> bool:
        return True

    def liveness(self, node: Node) -> ProbeAnswer:
        if node.node_id in self.unknown_nodes:
            return ProbeAnswer(node.cluster.kind, None, f"not registered in cluster {node.cluster.name}")
        is_up = f"placement-of-{node.node_id}" not in self.disconnected
        return ProbeAnswer(node.cluster.kind, is_up=is_up, text="agent connected" if is_up else "agent not connected")

    def start_rank(self, job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        task_id = f"task-{job.job_id}-{run.number}-{task.rank}{self.series}"
        self.tasks.setdefault(task_id, task)
        self.environments.setdefault(task_id, environment)
        return task_id

    def find_ranks(self, job: Job, run: Run) -> Mapping[str, str]:
        known = [(task.placement, f"task-{job.job_id}-{run.number}-{task.rank}") for task in run.tasks]
        named = [(where, f"{name}{series}") for series in ("", self.series) for where, name in known]
        return {where: name for where, name in named if name in self.tasks and name not in self.stopped}

    def confirm_ranks(self, job: Job, run: Run, ranks: Sequence[GangTask]) -> Sequence[GangTask]:
        mine = f"task-{job.job_id}-{run.number}-"
        return [task for task in ranks if task.task_id.startswith(mine) or task.task_id not in self.tasks]

    def stop_rank(self, cluster: Cluster, task_id: str, reason: str) -> None:
        self.stopped.setdefault(task_id, reason)

    def live_ranks(self, cluster: Cluster) -> Sequence[TaskChange]:
        given = {name: self.environments.get(name, {}) for name in self.tasks if name not in self.stopped}
        return [
            TaskChange(has[JOB_VARIABLE], int(has[RUN_VARIABLE]), name, self.tasks[name].placement, "RUNNING", None, "")
            for name, has in given.items()
            if JOB_VARIABLE in has
        ]

    def rank_statuses(self, cluster: Cluster, ranks: Sequence[GangTask]) -> Sequence[RankStatus]:
        self.asked_after += [task.task_id for task in ranks]
        return [self._status(task) for task in ranks]

    def _status(self, task: GangTask) -> RankStatus:
        known = self.tasks.get(task.task_id)
        as_started = RankStatus(task.task_id, known.status if known else "MISSING", is_connected=True)
        status = self.statuses.get(task.task_id, as_started)
        return replace(status, is_connected=task.placement not in self.disconnected)

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        return [task for where, task in self.unmanaged.values() if where == node.node_id]

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        if self.unmanaged.pop(task.task_id, None) is not None:
            self.unmanaged_ended[task.task_id] = reason
        return self.unmanaged_ended.get(task.task_id) == reason

    def restart_unmanaged_task(self, node: Node, task: UnmanagedTask) -> str:
        MemoryScheduler.placement_of(self, node)
        successor = f"successor-of-{task.short_id}"
        if any(known.mark == task.mark for _, known in self.unmanaged_started):
            return successor
        if self.unmanaged_refused:
            raise PlacementRefused(self.unmanaged_refused)
        self.unmanaged_started.append((node.node_id, task))
        return successor


@dataclass(frozen=True)
class SentCommand:
    """A command that was sent to one node, on one boot."""

    document: str
    node_id: str
    boot_id: str
    parameters: Mapping[str, str]

    @property
    def request_id(self) -> str:
        """The request id that the node answers with."""
        return self.parameters.get("RequestId", "")


@dataclass
class MemoryNodeCommands:
    """Implements NodeCommands. `statuses` has the status of each command that was sent to one node."""

    sent: list[SentCommand] = field(default_factory=list)
    sent_to_all: list[tuple[list[str], Command]] = field(default_factory=list)  # nodes, and the commands sent to them
    statuses: dict[str, CommandStatus] = field(default_factory=dict)
    unknown_nodes: set[str] = field(default_factory=set)

    def send(self, node: Node, command: Command, expires_at: datetime) -> str:
        self._must_know(node)
        self.sent.append(SentCommand(command.document, node.node_id, node.boot_id, command.parameters))
        command_id = f"command-{len(self.sent)}"
        self.statuses[command_id] = CommandStatus("PENDING")
        return command_id

    def send_to_all(self, nodes: Sequence[Node], command: Command, expires_at: datetime) -> Sequence[str]:
        self._must_know(*nodes)
        self.sent_to_all.append(([node.node_id for node in nodes], command))
        return [f"to-all-{len(self.sent_to_all)}"]

    def sent_of(self, document: str) -> list[SentCommand]:
        """Return the commands sent by one document, in order."""
        return [command for command in self.sent if command.document == document]

    def look(self, node: Node, command_id: str) -> CommandStatus:
        return self.statuses.get(command_id, CommandStatus("UNKNOWN"))

    def _must_know(self, *nodes: Node) -> None:
        deaf = (node for node in nodes if node.node_id in self.unknown_nodes or node.provider is Provider.hyperpod)
        gone = [node.node_id for node in deaf]
        if gone:
            raise NotFound(f"{', '.join(gone)} takes no commands: not registered with SSM")


@dataclass
class MemoryWorkflows:
    """Implements Workflows. A token that was used once resumes nothing more."""

    started: list[str] = field(default_factory=list)
    jobs_started: list[tuple[str, int]] = field(default_factory=list)
    resumed: dict[str, StepResult | JobResult] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    since: dict[Started, datetime] = field(default_factory=dict)  # when each was started, where a test says so
    ended: set[tuple[str, int]] = field(default_factory=set)  # submissions whose executions have ended

    def start(self, incident_id: str, node_id: str) -> None:
        if incident_id not in self.started:
            self.started.append(incident_id)

    def run_job(self, job_id: str, submission: int) -> None:
        if (job_id, submission) not in self.jobs_started:
            self.jobs_started.append((job_id, submission))

    def resume(self, token: str, result: StepResult | JobResult) -> bool:
        if token in self.expired or token in self.resumed:
            return False
        self.resumed[token] = result
        return True

    def started_since(self, since: datetime) -> Sequence[Started]:
        return [started for started, at in self.since.items() if at >= since]

    def runs_job(self, job_id: str, submission: int) -> bool:
        return (job_id, submission) in self.jobs_started and (job_id, submission) not in self.ended


@dataclass
class MemoryNotifier:
    """Implements Notifier."""

    clock: Clock
    sent_in: Counter[tuple[datetime, str]] = field(default_factory=Counter)
    folded_in: Counter[tuple[datetime, str]] = field(default_factory=Counter)
    announced: list[tuple[str, Notification]] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    being_sent: set[str] = field(default_factory=set)
    marked: set[str] = field(default_factory=set)
    quarantined: list[tuple[str, str]] = field(default_factory=list)

    def announce(self, detail_type: str, notification: Notification) -> None:
        self.announced.append((detail_type, notification))

    def send(self, message: Message, a_minute: int) -> Delivery:
        if message.key in self.being_sent:
            return Delivery.BUSY
        self.being_sent.add(message.key)
        if not self.has_room(message, a_minute):
            return Delivery.FOLDED
        self.sent.append(message)
        return Delivery.SENT

    def has_room(self, message: Message, a_minute: int) -> bool:
        """Take one of this minute's messages to the channel, or count one that is folded."""
        if message.way is Way.WEBHOOK:
            return True
        place = self.clock().replace(second=0, microsecond=0), message.channel
        if self.sent_in[place] >= a_minute:
            self.folded_in[place] += 1
            return False
        self.sent_in[place] += 1
        return True

    def folded(self, minute: datetime, channel: str) -> int:
        return self.folded_in[minute, channel]

    def was_sent(self, key: str) -> bool:
        return key in self.marked

    def mark_sent(self, key: str) -> bool:
        is_first = key not in self.marked
        self.marked.add(key)
        return is_first

    def quarantine(self, body: str, why: str) -> None:
        self.quarantined.append((body, why))
