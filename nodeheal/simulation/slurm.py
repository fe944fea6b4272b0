"""Simulates a Slurm cluster over the pool: it starts its jobs on nodes that take work, and restarts them on others.

nodeheal sees a job as one unmanaged task on each of its nodes. It may drain, requeue and resume, and nothing else.
"""

import heapq
import json
from collections import Counter
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
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.ports.scheduler import Drained, NodePlacement, Scheduler
from nodeheal.simulation.agenda import Agenda, Due
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.cloud import SimScheduler, Throttles
from nodeheal.simulation.faults import Kind
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import DAY, SlurmJobs
from nodeheal.simulation.trace import Trace

# Of the SSM agent: its limit of commands at a time (amazon-ssm-agent, agent/appconfig/constants.go), and, assumed, how
# long one that calls Slurm's commands holds a worker.
WORKERS, WORKER_SECONDS = 5, 3.0
SCHEDULE_SECONDS = 60.0  # between two scheduling rounds (sched_interval)
SLURMD_TIMEOUT = 300.0  # until a node that does not answer is down, and its jobs are lost (SlurmdTimeout)
AGAIN_SECONDS = 120.0  # until a requeued job may start again (median)
HELD_SECONDS = 3_600.0  # until a person releases a job that was requeued too often (median)
COMPLETING_SECONDS = 20.0  # until its processes are gone, and its nodes free (median)
NEXT_JOB_SECONDS = 600.0  # from a job's end to the next one (median)
HANGS = 0.5  # of the jobs on a failed node; the others end at once
HANGS_SECONDS = 1_800.0  # until a job that hangs gives up (median): NCCL's default timeout
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


@dataclass(eq=False)
class SlurmJob:
    """A job as Slurm has it. `seconds`: its duration without interruptions."""

    job_id: str
    size: int  # nodes
    seconds: float
    may_requeue: bool
    restarts: int = 0
    nodes: tuple[str, ...] = ()  # allocated nodes; empty: it waits
    is_completing: bool = False
    not_before: float = 0.0
    end: Due | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it has no nodes yet, or no more."""
        return not self.nodes


class SlurmCluster:
    """The cluster's jobs, and their nodes. It uses a random stream of its own."""

    def __init__(self, wanted: SlurmJobs, agenda: Agenda, chance: Chance, trace: Trace, fleet: Fleet) -> None:
        self.wanted, self._agenda, self._trace, self._fleet = wanted, agenda, trace, fleet
        self._stream = chance.of("slurm")
        self._submitted = 0
        self._idle_since: dict[str, float] = {}
        self.jobs: dict[str, SlurmJob] = {}
        self.ended: Counter[str] = Counter()  # ended jobs, by how
        self.at_work: dict[str, SlurmJob] = {}  # by node
        self.takes_work: Callable[[str], bool] = lambda node_id: True
        self.on_requeued: Callable[[str, SlurmJob], None] = lambda node_id, job: None

    def begin(self) -> None:
        """Submit as many jobs as are wanted, and schedule from now on."""
        asked = 0
        while asked < self.wanted.share * len(self._fleet.nodes):
            asked += self._submit_drawn().size
        self._schedule()

    def submit(self, size: int, seconds: float, *, may_requeue: bool) -> SlurmJob:
        """Submit one more job. It starts at the next scheduling round."""
        self._submitted += 1
        job = SlurmJob(str(self._submitted), size, seconds, may_requeue)
        self.jobs[job.job_id] = job
        return job

    def is_late(self) -> bool:
        """Whether a command's answer comes too late. It is carried out."""
        return self.wanted.unanswered > 0 and self._stream.random() < self.wanted.unanswered

    def idle_seconds(self, node_id: str) -> float:
        """Return since how long the node has been up without a job, and since it was resumed if ever; whether it takes
        work.
        """
        node = self._fleet.nodes.get(node_id)
        if node is None or not node.is_up or node_id in self.at_work:
            return 0.0
        return self._agenda.now - max(node.booted_at, self._idle_since.get(node_id, 0.0))

    def resumed(self, node_id: str) -> None:
        """Resume the node."""
        self._idle_since[node_id] = self._agenda.now

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

    # Events of nodes

    def node_down(self, node: GroundTruth) -> None:
        """Handle a node that goes down: Slurm notices after a while that it does not answer, or when it answers
        again.
        """
        job = self.at_work.get(node.node_id)
        if job is not None:
            self._agenda.after(SLURMD_TIMEOUT, partial(self._node_failed, job, job.restarts))

    def node_up(self, node: GroundTruth) -> None:
        """Handle a node that boots: its earlier job is lost."""
        job = self.at_work.get(node.node_id)
        if job is not None:
            self._node_failed(job, job.restarts)

    def exits(self, node: GroundTruth, kind: Kind) -> None:
        """End the program on a node by a fault, and so its job; or it hangs, and the job with it."""
        job = self.at_work.get(node.node_id)
        if job is None or job.is_completing or job.end is None:
            return
        job.end.call_off()
        hangs = kind.effect != "exits" and self._stream.random() < HANGS
        seconds = lognormal(self._stream, HANGS_SECONDS, 0.3) if hangs else 0.0
        job.end = self._agenda.after(seconds, lambda: self._ends(job, "FAILED"))

    def _node_failed(self, job: SlurmJob, restarts: int) -> None:
        if job.restarts != restarts or job.is_waiting or job.is_completing:
            return
        if job.may_requeue:
            self._requeue(job)
        else:
            self._ends(job, "NODE_FAIL")

    # Jobs

    def _submit_drawn(self) -> SlurmJob:
        seconds = lognormal(self._stream, self.wanted.days * DAY, 0.7)
        size = self._stream.randint(1, self.wanted.most_nodes)
        return self.submit(size, seconds, may_requeue=self._stream.random() < self.wanted.requeueable)

    def _next(self) -> None:
        if self.wanted.share and not self._fleet.is_over:
            self._submit_drawn()

    def _schedule(self) -> None:
        """Start waiting jobs, in order; a smaller job may overtake a larger one."""
        free = [name for name, node in self._fleet.nodes.items() if self._is_free(node)]
        for job in [one for one in self.jobs.values() if one.is_waiting and one.not_before <= self._agenda.now]:
            if job.size <= len(free):
                job.nodes = tuple(self._stream.sample(free, job.size))
                free = [name for name in free if name not in job.nodes]
                self._start(job)
        self._agenda.after(SCHEDULE_SECONDS, self._schedule)

    def _is_free(self, node: GroundTruth) -> bool:
        return node.is_up and node.node_id not in self.at_work and self.takes_work(node.node_id)

    def _start(self, job: SlurmJob) -> None:
        self._trace.tell("slurm starts", job.job_id, ", ".join(job.nodes))
        self.at_work |= dict.fromkeys(job.nodes, job)
        job.end = self._agenda.after(job.seconds, lambda: self._ends(job, "COMPLETED"))

    def _ends(self, job: SlurmJob, how: str) -> None:
        self._trace.tell("slurm ends", job.job_id, how)
        self.ended[how] += 1
        self._leave(job, self._is_over)
        self._agenda.after(lognormal(self._stream, NEXT_JOB_SECONDS, 0.5), self._next)

    def _requeue(self, job: SlurmJob, held_seconds: float = 0.0) -> None:
        self._trace.tell("slurm requeues", job.job_id, ", ".join(job.nodes))
        job.restarts += 1
        self._leave(job, partial(self._waits_again, held_seconds))

    def _leave(self, job: SlurmJob, then: Callable[[SlurmJob], None]) -> None:
        """End a job: it keeps its nodes until its processes are gone."""
        if job.end is not None:
            job.end.call_off()
        job.is_completing = True

        def left() -> None:
            for name in job.nodes:
                self._idle_since[name] = self._agenda.now
                del self.at_work[name]
            job.nodes, job.is_completing = (), False
            then(job)

        self._agenda.after(lognormal(self._stream, COMPLETING_SECONDS, 0.5), left)

    def _is_over(self, job: SlurmJob) -> None:
        del self.jobs[job.job_id]

    def _waits_again(self, held_seconds: float, job: SlurmJob) -> None:
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
            self.on_stop_unmanaged(node, task)
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
        said = carried_out()
        if is_late:
            raise NotAccepted("the Slurm controller of training has not answered in time")
        return said
