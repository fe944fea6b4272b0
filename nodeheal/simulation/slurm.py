"""Simulates a Slurm cluster over the pool: it starts its jobs on nodes that take work, and restarts them on others.

nodeheal sees a job as one unmanaged task on each of its nodes. It may drain, requeue and resume, and nothing else.
"""

import heapq
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from nodeheal.adapters.slurm.controller import ANSWER_SECONDS
from nodeheal.adapters.slurm.scheduler import TRAITS
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.holder import HeldByPerson
from nodeheal.domain.fleet.machine import ClusterReplacement
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.ports.scheduler import Drained, NodePlacement, Scheduler
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.cloud import SimScheduler, Throttles
from nodeheal.simulation.cluster_jobs import ClusterJob, SimulatedJobs
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import SlurmJobs
from nodeheal.simulation.trace import Trace

# Of the SSM agent: its limit of commands at a time (amazon-ssm-agent, agent/appconfig/constants.go), and, assumed, how
# long one that calls Slurm's commands holds a worker.
WORKERS, WORKER_SECONDS = 5, 3.0
AGAIN_SECONDS = 120.0  # until a requeued job may start again (median)
HELD_SECONDS = 3_600.0  # until a person releases a job that was requeued too often (median)
COMPLETING_SECONDS = 20.0  # until its processes are gone, and its nodes free (median)
Answer = TypeVar("Answer")


@dataclass
class ControllerMachine:
    """The SSM agent on the controller's machine: it works on a few commands at a time, in the order of their arrival.

    A command that begins when nobody waits for its answer any more is refused, and holds a worker all the same.
    """

    workers: list[float] = field(default_factory=lambda: [0.0] * WORKERS)  # until when each is held
    sent_at: list[float] = field(default_factory=list)

    def run(self, now: float) -> tuple[float, bool]:
        """Return when a command ends that is sent now, and whether it is carried out."""
        self.sent_at.append(now)
        begins = max(now, heapq.heappop(self.workers))
        heapq.heappush(self.workers, begins + WORKER_SECONDS)
        return begins + WORKER_SECONDS, begins < now + ANSWER_SECONDS


class SlurmCluster(SimulatedJobs[ClusterJob]):
    """The cluster's jobs, and their nodes."""

    def __init__(self, wanted: SlurmJobs, agenda: Agenda, chance: Chance, trace: Trace, fleet: Fleet) -> None:
        super().__init__("slurm", wanted, agenda, chance, trace, fleet)
        self._unanswered = wanted.unanswered

    def is_late(self) -> bool:
        """Whether a command's answer comes too late. It is carried out."""
        return self._unanswered > 0 and self._stream.random() < self._unanswered

    def requeue(self, job_id: str, node_id: str, restarts: int, *, is_held: bool) -> bool:
        """Requeue the job, as `nodeheal-agent slurm requeue` does: at most once for this restart count.

        A held job waits until a person releases it.
        """
        job = self.jobs.get(job_id)
        if job is None or node_id not in job.nodes or job.restarts > restarts:
            return job is not None and job.restarts > restarts
        if job.is_completing or not job.may_requeue:
            return False
        self.on_requeued(node_id, job)
        self._requeue(job, lognormal(self._stream, HELD_SECONDS, 0.5) if is_held else 0.0)
        return True

    def _make(self, job_id: str, size: int, seconds: float, may_requeue: bool) -> ClusterJob:
        return ClusterJob(job_id, size, seconds, may_requeue)

    def _lose(self, job: ClusterJob) -> None:
        if job.may_requeue:
            self._requeue(job)
        else:
            self._ends(job, "NODE_FAIL")

    def _requeue(self, job: ClusterJob, held_seconds: float = 0.0) -> None:
        self._trace.tell("slurm requeues", job.job_id, ", ".join(job.nodes))
        job.restarts += 1
        self._leave(job, partial(self._waits_again, held_seconds))

    def _leave(self, job: ClusterJob, then: Callable[[ClusterJob], None]) -> None:
        if job.end is not None:
            job.end.call_off()
        job.is_completing = True

        def left() -> None:
            for name in job.nodes:
                self._leaves(name)
            job.nodes, job.is_completing = (), False
            then(job)

        self._agenda.after(lognormal(self._stream, COMPLETING_SECONDS, 0.5), left)

    def _waits_again(self, held_seconds: float, job: ClusterJob) -> None:
        job.not_before = self._agenda.now + held_seconds + lognormal(self._stream, AGAIN_SECONDS, 0.5)


class SimSlurm(SimScheduler):
    """Implements what Slurm can do. Each call is one command to the controller's machine."""

    traits = TRAITS

    def __init__(self, throttles: Throttles, cluster: SlurmCluster) -> None:
        super().__init__(throttles)
        self.machine = ControllerMachine()
        self.drained_at: dict[str, float] = {}
        self._cluster = cluster
        cluster.takes_work = lambda node_id: node_id not in self.draining
        self.on_hand_over: Callable[[Node], None] = lambda node: None
        self.handed_over: set[str] = set()  # nodes whose machines the cluster was to replace

    def as_scheduler(self, kind: SchedulerKind) -> Scheduler:
        return Scheduler(kind, self.traits, self, workloads=self, machines=self)

    def placement_of(self, node: Node) -> NodePlacement:
        return self._answered(lambda: super(SimScheduler, self).placement_of(node))

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        return self._answered(lambda: {node.node_id: self._drain(node) for node in nodes})

    def _drain(self, node: Node) -> Drained:
        if node.node_id not in self.draining:  # the controller leaves a node as it is that is drained already
            self.on_act("isolate", node.node_id, node.open_incident or "")
            self.draining.add(node.node_id)
            self.drained_at[node.node_id] = self._throttles.now
        tasks = tuple(self._tasks(node.node_id))
        return Drained(f"placement-of-{node.node_id}", bool(tasks), tasks, self._holder(node))

    def _holder(self, node: Node) -> HeldByPerson | None:
        return HeldByPerson("people") if node.node_id in self.held_by_people else None

    def undrain(self, node: Node, placement: NodePlacement) -> None:
        def resume() -> None:
            if node.node_id in self.held_by_people:  # the controller leaves a person's drain as it is
                return
            self.on_switched_on(node.node_id)
            self.draining.discard(node.node_id)
            self._cluster.resumed(node.node_id)

        self._answered(resume)

    def have_replaced(self, node: Node, how: ClusterReplacement, others: Collection[str]) -> None:
        def hand_over() -> None:
            if node.node_id not in self.handed_over:
                self.handed_over.add(node.node_id)
                self.on_hand_over(node)

        self._answered(hand_over)

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        return self._answered(lambda: list(self._tasks(node.node_id)))

    def _tasks(self, node_id: str) -> Iterator[UnmanagedTask]:
        job = self._cluster.at_work.get(node_id)
        if job is not None:
            known = json.dumps({"address": node_id, "restarts": job.restarts})
            yield UnmanagedTask(job.job_id, f"job of {job.size} nodes", "eve", job.may_requeue, known)

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        def requeue() -> bool:
            self.on_stop_unmanaged(node.node_id, task)
            restarts = json.loads(task.scheduler_json)["restarts"]
            return self._cluster.requeue(task.task_id, node.node_id, restarts, is_held=task.is_held)

        return self._answered(requeue)

    def node_down(self, node: GroundTruth) -> None:
        self._cluster.node_down(node)

    def _answered(self, carried_out: Callable[[], Answer]) -> Answer:
        """Return the controller's answer. A late answer raises, although the command was carried out; repeating it is
        harmless.
        """
        self._throttles.take("send_command", "SendCommand")
        sent = self._throttles.now
        ends, is_carried_out = self.machine.run(sent)
        is_late = ends > sent + ANSWER_SECONDS or self._cluster.is_late()
        self._throttles.wait(min(ends, sent + ANSWER_SECONDS) - sent)
        if not is_carried_out:
            raise NotAccepted("the Slurm controller of training has not answered in time")
        answer = carried_out()
        if is_late:
            raise NotAccepted("the Slurm controller of training has not answered in time")
        return answer
