"""Implements the ports that act, with AWS's throttling and with nodes that behave by their true state."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from nodeheal.adapters.memory.world import MemoryNodeCommands, MemoryNotifier, MemoryScheduler, MemoryWorkflows
from nodeheal.contract.job_steps import JobResult
from nodeheal.contract.names import job_execution
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import StepResult
from nodeheal.contract.type_adapters import adapter_of
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.holder import Holder
from nodeheal.domain.fleet.liveness import ProbeAnswer
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.parsers.kernel_line import parse_message
from nodeheal.ports.commands import Command, CommandStatus
from nodeheal.ports.compute import Started
from nodeheal.ports.messaging import Delivery, Message
from nodeheal.ports.scheduler import Drained, NodePlacement, RankStatus, TaskChange
from nodeheal.simulation.agenda import Agenda, seconds_of
from nodeheal.simulation.chance import Bucket
from nodeheal.simulation.executions import Executions
from nodeheal.simulation.faults import kinds
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import Quotas

FILTERED_AT_ONCE, UPDATED_AT_ONCE = 50, 10  # nodes in one call (adapters/ecs/scheduler.py)
Asked = Mapping[str, str]  # the parameters of a command
CALL_SECONDS = 0.05  # duration of an AWS call; the next one of the same function starts after it
SENDING_SECONDS = 45.0  # as long as a claim to send an email is valid (adapters/aws/notifier.py)


@dataclass
class Throttles:
    """The token buckets of one account. A function makes its calls in sequence, so quotas see each at its own time."""

    agenda: Agenda
    quotas: Quotas
    calls: int = 0  # of the running function
    waited: float = 0.0  # seconds for which it has waited for answers
    is_running: bool = False

    def __post_init__(self) -> None:
        self.buckets = {name: Bucket(*quota) for name, quota in vars(self.quotas).items()}

    def take(self, name: str, call: str) -> None:
        """Take a token. Raises NotAccepted, like the real adapters, where AWS throttles."""
        at = self.now
        self.calls += self.is_running
        if not self.buckets[name].take(at):
            raise NotAccepted(f"{call}: ThrottlingException")

    @property
    def now(self) -> float:
        """When the running function makes its next call."""
        return self.agenda.now + self.calls * CALL_SECONDS + self.waited * self.is_running

    def wait(self, seconds: float) -> None:
        """Have the running function wait for an answer."""
        self.waited += seconds * self.is_running

    def function_runs(self, is_running: bool) -> None:
        """Mark that a function begins or has ended. How long one has waited is known until the next one begins."""
        self.calls, self.is_running = 0, is_running
        self.waited = 0.0 if is_running else self.waited


Acts = Callable[[str, str, str], None]  # verb, node, incident


class SimScheduler(MemoryScheduler):
    """Implements all that a scheduler can do. A started task runs after a delay, and a stopped one ends after a delay.

    An unmanaged task on a node that goes down is dead; its owner must start it again.
    """

    def __init__(self, throttles: Throttles) -> None:
        super().__init__()
        self._throttles = throttles
        self._unmanaged_stopped: dict[str, list[UnmanagedTask]] = {}
        self.on_act: Acts = lambda verb, node_id, why: None
        self.on_switched_on: Callable[[str], None] = lambda node_id: None
        self.on_start: Callable[[Job, Run, GangTask, str], None] = lambda job, run, task, task_id: None
        self.on_launch: Callable[[Run], None] = lambda run: None
        self.on_stop: Callable[[str, str], None] = lambda task_id, reason: None
        self.on_see: Callable[[GangTask], RankStatus] = lambda task: RankStatus(
            task.task_id, "MISSING", is_connected=False
        )
        self.on_live: Callable[[], Sequence[TaskChange]] = list
        self.on_stop_unmanaged: Callable[[str, UnmanagedTask], None] = lambda node_id, task: None

    def placement_of(self, node: Node) -> NodePlacement:
        self._throttles.take("ecs_reads", "DescribeContainerInstances")
        return super().placement_of(node)

    def placements_of(self, nodes: Sequence[Node]) -> Mapping[str, NodePlacement]:
        for _ in range(0, len(nodes), FILTERED_AT_ONCE):
            self._throttles.take("ecs_reads", "ListContainerInstances")
            self._throttles.take("ecs_reads", "DescribeContainerInstances")
        return {node.node_id: super(SimScheduler, self).placement_of(node) for node in nodes}

    def names_in_service(self, nodes: Sequence[Node]) -> Sequence[str]:
        self._throttles.take("ecs_reads", "ListContainerInstances")
        return super().names_in_service(nodes)

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        drained: dict[str, Drained] = {}
        for first in range(0, len(nodes), UPDATED_AT_ONCE):
            self._throttles.take("ecs_writes", "UpdateContainerInstancesState")
            for node in nodes[first : first + UPDATED_AT_ONCE]:
                self.on_act("isolate", node.node_id, node.open_incident or "")
                self.draining.add(node.node_id)
                drained[node.node_id] = Drained(f"placement-of-{node.node_id}", self._has_tasks(node))
        return drained

    def show_isolation(self, node: Node, placement: NodePlacement, incident_id: str) -> None:
        self._throttles.take("ecs_tags", "TagResource")
        self.isolated_by[node.node_id] = incident_id

    def undrain(self, node: Node, placement: NodePlacement) -> Holder | None:
        self._throttles.take("ecs_writes", "UpdateContainerInstancesState")
        self.on_switched_on(node.node_id)
        self.draining.discard(node.node_id)
        self._throttles.take("ecs_tags", "UntagResource")
        self.isolated_by.pop(node.node_id, None)
        return None

    def start_rank(self, job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        self._throttles.take("ecs_writes", "StartTask")
        is_new = f"task-{job.job_id}-{run.number}-{task.rank}{self.series}" not in self.tasks
        task_id = super().start_rank(job, run, task, {})
        if is_new:
            self.on_launch(run)
            self.on_start(job, run, task, task_id)
        return task_id

    def find_ranks(self, job: Job, run: Run) -> Mapping[str, str]:
        self._throttles.take("ecs_reads", "ListTasks")
        return super().find_ranks(job, run)

    def confirm_ranks(self, job: Job, run: Run, ranks: Sequence[GangTask]) -> Sequence[GangTask]:
        self._throttles.take("ecs_reads", "DescribeTasks")
        return super().confirm_ranks(job, run, ranks)

    def stop_rank(self, cluster: Cluster, task_id: str, reason: str) -> None:
        self._throttles.take("ecs_writes", "StopTask")
        super().stop_rank(cluster, task_id, reason)
        self.on_stop(task_id, reason)

    def live_ranks(self, cluster: Cluster) -> Sequence[TaskChange]:
        self._throttles.take("ecs_reads", "ListTasks")
        return self.on_live()

    def rank_statuses(self, cluster: Cluster, ranks: Sequence[GangTask]) -> Sequence[RankStatus]:
        self._throttles.take("ecs_reads", "DescribeTasks")
        return [self.on_see(task) for task in ranks]

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        self._throttles.take("ecs_reads", "ListTasks")
        there = super().unmanaged_tasks(node, placement) if self.unmanaged else []
        if there:
            self._throttles.take("ecs_reads", "DescribeTasks")
        return there

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        self._throttles.take("ecs_writes", "StopTask")
        if task.task_id in self.unmanaged:
            self.on_stop_unmanaged(node.node_id, task)
            self._unmanaged_stopped.setdefault(reason, []).append(task)
        return super().stop_unmanaged_task(node, task, reason)

    def restart_unmanaged_task(self, node: Node, task: UnmanagedTask) -> str:
        self.placement_of(node)
        self._throttles.take("ecs_writes", "StartTask")
        return super().restart_unmanaged_task(node, task)

    def drain_by_people(self, node_id: str) -> None:
        """Have a person drain a node."""
        self.draining.add(node_id)
        if self.traits.records_holder:
            self.held_by_people.add(node_id)

    def missing(self, reason: str) -> list[UnmanagedTask]:
        """Return the unmanaged tasks that were stopped for this reason, and were not started again."""
        begun = {task.mark for _, task in self.unmanaged_started}
        return [task for task in self._unmanaged_stopped.get(reason, ()) if task.mark not in begun]

    def tasks_of_others_on(self, node_id: str) -> list[UnmanagedTask]:
        """Return the unmanaged tasks that run there now."""
        return [task for where, task in self.unmanaged.values() if where == node_id]

    def node_down(self, node: GroundTruth) -> None:
        """End the unmanaged tasks on the node."""
        for task_id in [name for name, (where, _) in self.unmanaged.items() if where == node.node_id]:
            del self.unmanaged[task_id]


class SimCommands(MemoryNodeCommands):
    """Implements NodeCommands, for nodes that are up, on the command's boot, before it expires."""

    def __init__(self, throttles: Throttles, fleet: Fleet) -> None:
        super().__init__()
        self._throttles, self._fleet = throttles, fleet
        self.on_act: Acts = lambda verb, node_id, why: None
        self.on_diagnose: Callable[[Node], None] = lambda node: None
        self.on_search: Callable[[GroundTruth, str, str], None] = lambda node, directory, request_id: None
        self.on_look: Callable[[GroundTruth, str, str], None] = lambda node, directory, request_id: None

    def send(self, node: Node, command: Command, expires_at: datetime) -> str:
        self._throttles.take("send_command", "SendCommand")
        command_id = super().send(node, command, expires_at)
        if command.document == "reboot-node":
            self.on_act("reboot", node.node_id, node.boot_id)
        if command.document == "reset-gpu":
            self.on_act("reset", node.node_id, node.boot_id)
        if command.document == "run-diagnostics":
            self.on_diagnose(node)
        if command.document in _OBEYED:
            obey = partial(_OBEYED[command.document], self, command_id, command.parameters)
            self._fleet.order(node.node_id, node.boot_id, command_id, expires_at, obey)
        return command_id

    def send_to_all(self, nodes: Sequence[Node], command: Command, expires_at: datetime) -> Sequence[str]:
        self._throttles.take("send_command", "SendCommand")
        return [f"to-all-{len(nodes)}"]

    def _reboots(self, command_id: str, asked: Asked, node: GroundTruth) -> None:
        node.left = json.loads(urlsafe_b64decode(f"{asked['AfterBoot']}==")) if "AfterBoot" in asked else {}
        answer = {"diagnoses": node.left["request_id"]} if node.left else {}
        self.statuses[command_id] = CommandStatus("SUCCEEDED", json.dumps(answer))
        self._fleet.reboot_soon(node)

    def _resets_gpu(self, command_id: str, asked: Asked, node: GroundTruth) -> None:
        self._fleet.reset_gpu(node, asked["RequestId"])

    def _diagnoses(self, command_id: str, asked: Asked, node: GroundTruth) -> None:
        self._fleet.diagnose(node, asked["RequestId"])

    def _freezes_evidence(self, command_id: str, asked: Asked, node: GroundTruth) -> None:
        self._fleet.freeze_evidence(node, asked)

    def _looks_for_checkpoint(self, command_id: str, asked: Asked, node: GroundTruth) -> None:
        look = self.on_look if "SightAfter" in asked else self.on_search
        look(node, asked["Directory"], asked["RequestId"])

    def _reports_drill(self, command_id: str, asked: Asked, node: GroundTruth) -> None:
        line = urlsafe_b64decode(f"{asked['Line']}==").decode()
        finding = parse_message(line)
        kind = next(kind for kind in kinds() if finding is not None and kind.code == finding.code)
        self._fleet.pretend(node, kind, line)

    def refused(self, command_id: str) -> None:
        """Record that the node has refused the command."""
        self.statuses[command_id] = CommandStatus("FAILED", exit_code=3)


_OBEYED = {
    "reset-gpu": SimCommands._resets_gpu,
    "reboot-node": SimCommands._reboots,
    "run-diagnostics": SimCommands._diagnoses,
    "freeze-evidence": SimCommands._freezes_evidence,
    "find-checkpoint": SimCommands._looks_for_checkpoint,
    "inject-fault": SimCommands._reports_drill,
}


class SimWorkflows(MemoryWorkflows):
    """Implements Workflows, on the simulated Step Functions."""

    def __init__(self, throttles: Throttles, executions: Executions) -> None:
        super().__init__()
        self._throttles, self._executions = throttles, executions

    def start(self, incident_id: str, node_id: str) -> None:
        if incident_id not in self._executions.names:
            self._throttles.take("start_execution", "StartExecution")
            self._executions.start("recover_node", incident_id, {"incident_id": incident_id, "node_id": node_id})

    def run_job(self, job_id: str, submission: int) -> None:
        name = job_execution(job_id, submission)
        if name not in self._executions.names:
            self._throttles.take("start_execution", "StartExecution")
            self._executions.start("run_job", name, {"job_id": job_id, "submission": submission})

    def resume(self, token: str, result: StepResult | JobResult) -> bool:
        return self._executions.resume(token, result.model_dump(mode="json"))

    def started_since(self, since: datetime) -> Sequence[Started]:
        given = [given for at, given in self._executions.begun.values() if at >= seconds_of(since)]
        return [adapter_of(Started).validate_python(execution) for execution in reversed(given)]

    def runs_job(self, job_id: str, submission: int) -> bool:
        return job_execution(job_id, submission) in self._executions.live


class SimNotifier(MemoryNotifier):
    """Implements Notifier. Announcements reach `notify` over the bus; emails reach the simulated operators."""

    def __init__(self, agenda: Agenda) -> None:
        super().__init__(agenda.clock)
        self._agenda = agenda
        self._claims: dict[str, float] = {}
        self.on_announce: Callable[[str, Notification], None] = lambda kind, notification: None
        self.on_send: Callable[[Notification], None] = lambda notification: None

    def announce(self, detail_type: str, notification: Notification) -> None:
        self.on_announce(detail_type, notification)

    def send(self, message: Message, a_minute: int) -> Delivery:
        if self._claims.get(message.key, -1.0) > self._agenda.now:
            return Delivery.BUSY
        self._claims[message.key] = self._agenda.now + SENDING_SECONDS
        if not self.has_room(message, a_minute):
            return Delivery.FOLDED
        self.on_send(message.notification)
        return Delivery.SENT


_ASKED = {
    SchedulerKind.ECS: ("ecs_reads", "DescribeContainerInstances"),
    SchedulerKind.KUBERNETES: ("kubernetes", "the API server of training"),
}


class SimLivenessProbes:
    """Implements LivenessProbes: the scheduler and the command channel report the node's true state. Slurm is not
    queried.
    """

    def __init__(self, fleet: Fleet, throttles: Throttles) -> None:
        self._fleet, self._throttles = fleet, throttles

    def ask(self, node: Node) -> Sequence[ProbeAnswer]:
        is_asked, name = node.cluster.kind in _ASKED, node.cluster.kind.lower()
        if is_asked:
            self._throttles.take(*_ASKED[node.cluster.kind])
        known = self._fleet.nodes.get(node.node_id)
        if known is None or known.is_gone:
            return [ProbeAnswer("ec2", is_up=False, text="its machine is terminated", gone="terminated")]
        if known.is_up:
            return [ProbeAnswer(name if is_asked else "ssm", is_up=True, text="its agent is connected")]
        scheduler = ProbeAnswer(name, is_up=False, text="its agent is not connected")
        if not is_asked:
            scheduler = ProbeAnswer(name, is_up=None, text="not asked")
        return [scheduler, ProbeAnswer("ssm", is_up=False, text="no ping", is_unreachable=known.rebooting)]
