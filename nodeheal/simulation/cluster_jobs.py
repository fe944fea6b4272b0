"""Simulates the jobs of a cluster that starts them itself, on nodes that take work: Slurm's, or Kubernetes'."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from nodeheal.simulation.agenda import Agenda, Due
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.faults import Kind
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import DAY, ClusterWork
from nodeheal.simulation.trace import Trace

SCHEDULE_SECONDS = 60.0  # between two scheduling rounds (Slurm's sched_interval)
# Until a node that does not answer has lost its jobs (SlurmdTimeout; Kubernetes' toleration of unreachable nodes).
UNREACHABLE_SECONDS = 300.0
NEXT_JOB_SECONDS = 600.0  # from a job's end to the next one (median)
HANGS = 0.5  # of the jobs on a failed node; the others end at once
HANGS_SECONDS = 1_800.0  # until a job that hangs gives up (median): NCCL's default timeout


@dataclass(eq=False)
class ClusterJob:
    """A job as its cluster has it. `seconds`: its duration without interruptions."""

    job_id: str
    size: int  # nodes
    seconds: float
    may_requeue: bool
    restarts: int = 0
    nodes: tuple[str, ...] = ()  # allocated nodes; empty: it waits
    is_completing: bool = False
    not_before: float = 0.0
    suspended_by: str = ""  # empty: it is not suspended, as no job of Slurm is
    end: Due | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it has no nodes yet, or no more."""
        return not self.nodes


Job = TypeVar("Job", bound=ClusterJob)


class SimulatedJobs(ABC, Generic[Job]):
    """The jobs, and their nodes. They use a random stream of their own, of the cluster's name."""

    def __init__(
        self, name: str, wanted: ClusterWork, agenda: Agenda, chance: Chance, trace: Trace, fleet: Fleet
    ) -> None:
        self._name, self._wanted, self._agenda, self._trace, self._fleet = name, wanted, agenda, trace, fleet
        self._stream = chance.of(name)
        self._submitted = 0
        self._idle_since: dict[str, float] = {}
        self.jobs: dict[str, Job] = {}
        self.ended: Counter[str] = Counter()  # ended jobs, by how
        self.at_work: dict[str, Job] = {}  # by node
        self.takes_work: Callable[[str], bool] = lambda node_id: True
        self.on_requeued: Callable[[str, ClusterJob], None] = lambda node_id, job: None

    def begin(self) -> None:
        """Submit as many jobs as are wanted, and schedule from now on."""
        asked = 0
        while asked < self._wanted.share * len(self._fleet.nodes):
            asked += self._submit_drawn().size
        self._schedule()

    def submit(self, size: int, seconds: float, *, may_requeue: bool) -> Job:
        """Submit one more job. It starts at the next scheduling round."""
        self._submitted += 1
        job = self._make(str(self._submitted), size, seconds, may_requeue)
        self.jobs[job.job_id] = job
        return job

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

    # Events of nodes

    def node_down(self, node: GroundTruth) -> None:
        """Handle a node that goes down: it is noticed after a while that it does not answer, or when it answers
        again.
        """
        job = self.at_work.get(node.node_id)
        if job is not None:
            self._agenda.after(UNREACHABLE_SECONDS, partial(self._node_failed, job, job.restarts))

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

    def _node_failed(self, job: Job, restarts: int) -> None:
        if job.restarts == restarts and not job.is_waiting and not job.is_completing:
            self._lose(job)

    # Jobs

    @abstractmethod
    def _make(self, job_id: str, size: int, seconds: float, may_requeue: bool) -> Job: ...

    @abstractmethod
    def _lose(self, job: Job) -> None:
        """Handle a job that has lost a node."""

    @abstractmethod
    def _leave(self, job: Job, then: Callable[[Job], None]) -> None:
        """End a job: it keeps its nodes until its processes are gone."""

    def _may_start(self, job: Job) -> bool:
        return job.is_waiting and job.not_before <= self._agenda.now

    def _submit_drawn(self) -> Job:
        seconds = lognormal(self._stream, self._wanted.days * DAY, 0.7)
        size = self._stream.randint(1, self._wanted.most_nodes)
        return self.submit(size, seconds, may_requeue=self._stream.random() < self._wanted.requeueable)

    def _next(self) -> None:
        if self._wanted.share and not self._fleet.is_over:
            self._submit_drawn()

    def _schedule(self) -> None:
        """Start waiting jobs, in order; a smaller job may overtake a larger one."""
        waiting = [job for job in self.jobs.values() if self._may_start(job)]
        free = [name for name, node in self._fleet.nodes.items() if self._is_free(node)] if waiting else []
        for job in waiting:
            if job.size <= len(free):
                job.nodes = tuple(self._stream.sample(free, job.size))
                free = [name for name in free if name not in job.nodes]
                self._start(job)
        self._agenda.after(SCHEDULE_SECONDS, self._schedule)

    def _is_free(self, node: GroundTruth) -> bool:
        return node.is_up and node.node_id not in self.at_work and self.takes_work(node.node_id)

    def _start(self, job: Job) -> None:
        self._trace.tell(f"{self._name} starts", job.job_id, ", ".join(job.nodes))
        self.at_work |= dict.fromkeys(job.nodes, job)
        job.end = self._agenda.after(job.seconds, lambda: self._ends(job, "COMPLETED"))

    def _ends(self, job: Job, how: str) -> None:
        self._trace.tell(f"{self._name} ends", job.job_id, how)
        self.ended[how] += 1
        self._leave(job, self._is_over)
        self._agenda.after(lognormal(self._stream, NEXT_JOB_SECONDS, 0.5), self._next)

    def _is_over(self, job: Job) -> None:
        del self.jobs[job.job_id]

    def _leaves(self, node_id: str) -> None:
        """Free a node on which its job has no process any more."""
        self.resumed(node_id)
        del self.at_work[node_id]
