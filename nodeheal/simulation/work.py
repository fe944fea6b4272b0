"""Simulates training on the pool: gangs progress while every rank runs, and lose what no checkpoint contains.

ranks.py has the true state of ranks; the control plane learns of it over the bus, late.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from nodeheal.contract.health_event import CheckpointFound, Sight
from nodeheal.contract.job_spec import Checkpoints, Preflight
from nodeheal.contract.vocabulary import CheckpointFormat, JobState, SchedulerKind
from nodeheal.domain.errors import Conflict, NotAccepted
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.jobs.job import Job
from nodeheal.ports import Ports
from nodeheal.services.jobs.submit_job import restart_job, submit_job
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.gang import GangProgress
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.ranks import DONE_SECONDS, Ranks
from nodeheal.simulation.setting import DAY, Work
from nodeheal.simulation.trace import Trace

NEXT_JOB_SECONDS = 600.0
LOOKS_SECONDS = 5.0


class Training(Ranks):
    """Every job of the pool, submitted to the services."""

    def __init__(
        self, pool: str, work: Work, agenda: Agenda, chance: Chance, trace: Trace, ports: Ports, fleet: Fleet
    ) -> None:
        super().__init__(work, agenda, chance, fleet)
        self._pool, self._trace, self._ports = pool, trace, ports
        self._submitted = 0
        self.ended: Counter[str] = Counter()
        self.on_found: Callable[[CheckpointFound], None] = lambda event: None

    # Jobs

    def begin(self, nodes: int) -> None:
        """Submit as many jobs as the pool is to hold."""
        for _ in range(int(nodes * self._work.share) // self._work.gang_nodes):
            self._agenda.after(self._stream.uniform(0, 600.0), self._submit)

    def _submit(self) -> None:
        if self._fleet.is_over:
            return
        if self._ports.epoch.read().has_gone_back:  # it is refused
            self._agenda.after(NEXT_JOB_SECONDS, self._submit)
            return
        self._submitted += 1
        name = f"job-{self._submitted:05d}"
        lasts = lognormal(self._stream, self._work.days * DAY, 0.5)
        every = int(self._work.checkpoint_seconds)
        job = Job(
            name,
            self._pool,
            Cluster(SchedulerKind.ECS, "training"),  # on the others nodeheal starts no jobs
            "trainer:1",
            "trainer",
            self._work.gang_nodes,
            state=JobState.SUBMITTED,
            accelerators=8,
            checkpoints=Checkpoints(directory=f"/fsx/{name}", format=CheckpointFormat.megatron, every_seconds=every),
            preflight=Preflight(level=1),
            submission=1,
            submitted_at=self._agenda.clock(),
        )
        self._gangs[name] = GangProgress(name, lasts, self._agenda.now)
        try:
            submit_job(job, self._ports)
        except NotAccepted:
            return  # the sweep repeats a lost start
        self._trace.tell("submits", name, f"{lasts / 3_600:.1f} h on {self._work.gang_nodes} nodes")

    def saved(self, job: Job) -> None:
        """Receive a write of a job's record."""
        gang = self._gangs.get(job.job_id)
        if gang is None or not job.is_over:
            return
        if job.state is JobState.COMPLETED:
            self._settle(gang)
            del self._gangs[job.job_id]
            self._agenda.after(lognormal(self._stream, NEXT_JOB_SECONDS, 0.5), self._submit)
        self.ended[job.state.value] += 1

    def restart(self, job_id: str) -> None:
        """Submit a failed job again, as a human does, where its work is not done."""
        job = self._ports.jobs.get(job_id)
        if job is None or not job.is_over or job_id not in self._gangs:
            return
        try:
            restart_job(job_id, self._ports)
            self._trace.tell("restarts", job_id)
        except (Conflict, NotAccepted):
            return

    def doubt(self, job_id: str) -> None:
        """Take a job for unfinished whose record says no more that it is done: submitted again, it ends soon."""
        job = self._ports.jobs.get(job_id)
        if job is not None and job.waits_for_a_human:
            self._gangs.setdefault(job_id, GangProgress(job_id, DONE_SECONDS, self._agenda.now))

    def down_for_good(self) -> Iterator[str]:
        """Return the jobs that only a human can bring back."""
        for name in list(self._gangs):
            job = self._ports.jobs.get(name)
            if job is not None and job.is_over:
                yield name

    # Checkpoints

    def look(self, node: GroundTruth, directory: str, request_id: str) -> None:
        """Search the newest checkpoint of the job on this directory, as the node does."""
        gang = self._gangs.get(directory.rpartition("/")[2])

        def answer() -> None:
            if not node.is_up or gang is None:
                return
            step = int(gang.progress(self._agenda.now, self._work))
            self.on_found(
                CheckpointFound(
                    **self._fleet.fact(node),
                    request_id=request_id,
                    directory=directory,
                    format=CheckpointFormat.megatron,
                    path=f"{directory}/iter_{step:07d}" if step else None,
                    step=step or None,
                )
            )

        self._agenda.after(lognormal(self._stream, LOOKS_SECONDS, 0.5), answer)

    def see(self, node: GroundTruth, directory: str, request_id: str) -> None:
        """Return what the node sees there: all nodes see one file system."""

        def answer() -> None:
            if node.is_up:
                self.on_found(
                    CheckpointFound(
                        **self._fleet.fact(node),
                        request_id=request_id,
                        directory=directory,
                        format=CheckpointFormat.auto,
                        sight=Sight(file_system="lustre", source="fsx", inode=1, device=1),
                    )
                )

        self._agenda.after(1.0, answer)
