"""Training on the pool: gangs that make progress while every rank runs, and lose what no checkpoint holds.

What a rank really does stands here; what the control plane believes of it comes over the bus, late. A rank writes from
the moment it runs until it has ended or its node has gone down: two runs of one job that write at the same time are
the one thing that must never be.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from nodeheal.contract.health_event import CheckpointFound, Sight
from nodeheal.contract.job_spec import Checkpoints, Preflight
from nodeheal.contract.vocabulary import CheckpointFormat, JobState
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.job import STOPPED_BY_REQUEST, GangTask, Job, Run
from nodeheal.ports import Ports
from nodeheal.services.submit_job import restart_job, submit_job
from nodeheal.services.translate.ecs_task import TaskChange
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.described import Described
from nodeheal.simulation.faults import Kind
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.gang import Gang, Rank
from nodeheal.simulation.setting import DAY, Work
from nodeheal.simulation.trace import Trace
from nodeheal.simulation.true_node import TrueNode

START_SECONDS, GRACE_SECONDS, HANG_SECONDS = 40.0, 15.0, 300.0  # medians: image pulled, SIGTERM obeyed, peers given up
NEXT_JOB_SECONDS = 600.0
DONE_SECONDS = 60.0  # a program that finds nothing left to do
LOOKS_SECONDS = 5.0
_MID_TERM = 143


class Training:
    """Every job of the pool."""

    def __init__(
        self, pool: str, work: Work, agenda: Agenda, chance: Chance, trace: Trace, ports: Ports, fleet: Fleet
    ) -> None:
        self._pool, self._work, self._agenda, self._trace = pool, work, agenda, trace
        self._ports, self._fleet = ports, fleet
        self._stream = chance.of("work")
        self._gangs: dict[str, Gang] = {}
        self._on_node: dict[str, list[Rank]] = {}
        self._submitted = 0
        self.described = Described(agenda)
        self.seconds: dict[str, float] = dict.fromkeys(("productive", "recomputed", "waiting", "down"), 0.0)
        self.ended: Counter[str] = Counter()
        self.on_task: Callable[[TaskChange], None] = lambda change: None
        self.on_found: Callable[[CheckpointFound], None] = lambda event: None
        self.on_doubled: Callable[[str, str], None] = lambda job_id, text: None

    # Jobs

    def begin(self, nodes: int) -> None:
        """Submit as many as the pool is to hold."""
        for _ in range(int(nodes * self._work.share) // self._work.gang_nodes):
            self._agenda.after(self._stream.uniform(0, 600.0), self._submit)

    def _submit(self) -> None:
        if self._fleet.is_over:
            return
        self._submitted += 1
        name = f"job-{self._submitted:05d}"
        lasts = lognormal(self._stream, self._work.days * DAY, 0.5)
        every = int(self._work.checkpoint_seconds)
        job = Job(
            name,
            self._pool,
            "training",
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
        self._gangs[name] = Gang(name, lasts, self._agenda.now)
        try:
            submit_job(job, self._ports)
        except NotAccepted:
            return  # a start that is lost, the sweep makes up for
        self._trace.tell("submits", name, f"{lasts / 3_600:.1f} h on {self._work.gang_nodes} nodes")

    def saved(self, job: Job) -> None:
        """A job's record was written."""
        gang = self._gangs.get(job.job_id)
        if gang is None or not job.is_over:
            return
        if job.state is JobState.COMPLETED:
            self._settle(gang)
            del self._gangs[job.job_id]
            self._agenda.after(lognormal(self._stream, NEXT_JOB_SECONDS, 0.5), self._submit)
        self.ended[job.state.value] += 1

    def _settle(self, gang: Gang) -> None:
        """Put its time to the account."""
        spent = gang.account(self._agenda.now, self._work.checkpoint_seconds)
        self.seconds = {cause: self.seconds[cause] + seconds for cause, seconds in spent.items()}

    def finish(self) -> None:
        """The simulation is over: those that run still are put to the account as they are."""
        for gang in self._gangs.values():
            self._settle(gang)

    def restart(self, job_id: str) -> None:
        """A human submits a job again that is down for good, and has not done its work."""
        job = self._ports.jobs.get(job_id)
        if job is None or not job.is_over or job_id not in self._gangs:
            return
        try:
            restart_job(job_id, self._ports)
            self._trace.tell("restarts", job_id)
        except (ValueError, NotAccepted):
            return

    def down_for_good(self) -> Iterator[str]:
        """Jobs that only a human brings back."""
        for name in list(self._gangs):
            job = self._ports.jobs.get(name)
            if job is not None and job.is_over:
                yield name

    # Ranks

    def started(self, job: Job, run: Run, task: GangTask, task_id: str) -> None:
        """The scheduler has been asked to start a rank."""
        node = self._fleet.nodes[task.node_id]
        rank = Rank(job.job_id, run.number, node, node.boot, task_id)
        # One that was submitted again while it ran, and has finished since: it finds its work done, and ends.
        gang = self._gangs.setdefault(job.job_id, Gang(job.job_id, DONE_SECONDS, self._agenda.now))
        if run.number != gang.run:
            self._leave_run(gang)
            gang.run, gang.ranks = run.number, {}
            gang.done_seconds = min(gang.done_seconds, float(run.resumed_step or 0)) if run.resumed_from else 0.0
        gang.ranks[task_id] = rank
        self._on_node.setdefault(task.node_id, []).append(rank)
        self._agenda.after(lognormal(self._stream, START_SECONDS, 0.4), lambda: self._runs(gang, rank))

    def _runs(self, gang: Gang, rank: Rank) -> None:
        if rank.state != "PENDING" or not rank.node.is_up or rank.node.boot != rank.boot:
            return
        rank.state = "RUNNING"
        self._look_for_others(gang, rank)
        self._tell(rank)
        mine = [one for one in gang.ranks.values() if one.run == rank.run]
        if rank.run == gang.run and len(mine) == self._work.gang_nodes and all(r.state == "RUNNING" for r in mine):
            gang.running_since = self._agenda.now
            gang.first_ran_at = self._agenda.now if gang.first_ran_at is None else gang.first_ran_at
            left = max(1.0, gang.total_seconds - gang.done_seconds)
            gang.end = self._agenda.after(left, lambda: self._complete(gang, rank.run))

    def _look_for_others(self, gang: Gang, rank: Rank) -> None:
        for ranks in self._on_node.values():
            for other in ranks:
                if other.job_id == gang.job_id and other.run != rank.run and other.state == "RUNNING":
                    told = f"run {rank.run} writes on {rank.node.node_id}, run {other.run} on {other.node.node_id}"
                    self.on_doubled(gang.job_id, told)

    def asked_to_stop(self, task_id: str, reason: str) -> None:
        """The scheduler has been asked to end a rank."""
        rank = next((one for ranks in self._on_node.values() for one in ranks if one.task_id == task_id), None)
        if rank is not None:
            told = f"{STOPPED_BY_REQUEST}: {reason}"
            self._agenda.after(lognormal(self._stream, GRACE_SECONDS, 0.4), lambda: self._stops(rank, _MID_TERM, told))

    def _stops(self, rank: Rank, exit_code: int | None, reason: str) -> None:
        """The rank ends where it is. On a node that is dark, nobody can end it, and nothing runs."""
        if rank.state == "STOPPED" or not rank.node.is_up or rank.node.boot != rank.boot:
            return
        self._dies(rank)
        self._tell(rank, exit_code, reason)

    def _dies(self, rank: Rank) -> None:
        rank.state = "STOPPED"
        self._on_node[rank.node.node_id].remove(rank)
        gang = self._gangs.get(rank.job_id)
        if gang is not None and gang.run == rank.run:
            self._leave_run(gang)

    def _leave_run(self, gang: Gang) -> None:
        """Not every rank runs any more: what was done since the last checkpoint is lost."""
        if gang.running_since is None:
            return
        gang.done_seconds = gang.progress(self._agenda.now, self._work.checkpoint_seconds)
        gang.trained_seconds += self._agenda.now - gang.running_since
        gang.running_since = None
        if gang.end is not None:
            gang.end.call_off()

    def _complete(self, gang: Gang, run: int) -> None:
        self._leave_run(gang)
        for rank in [one for one in gang.ranks.values() if one.run == run]:
            self._stops(rank, 0, "EssentialContainerExited: Essential container in task exited")

    def node_down(self, node: TrueNode) -> None:
        """Whatever ran there is dead; its peers hang, and give up after a while."""
        for rank in list(self._on_node.get(node.node_id, ())):
            self._dies(rank)
            self._on_node.setdefault(f"dark {node.node_id}", []).append(rank)
            self._peers_give_up(rank)

    def node_up(self, node: TrueNode) -> None:
        """The scheduler's agent is back, and says which tasks are gone."""
        for rank in self._on_node.pop(f"dark {node.node_id}", []):
            self._tell(rank, None, "the container instance was restarted")

    def exits(self, node: TrueNode, kind: Kind) -> None:
        """A fault ends the ranks on this node, and its peers give up."""
        code = int(kind.code.rpartition("_")[2]) if kind.effect == "exits" else 1
        for rank in list(self._on_node.get(node.node_id, ())):
            self._stops(rank, code, "EssentialContainerExited: Essential container in task exited")
            self._peers_give_up(rank)

    def _peers_give_up(self, rank: Rank) -> None:
        gang = self._gangs.get(rank.job_id)
        for peer in list(gang.ranks.values()) if gang is not None and gang.run == rank.run else ():
            if peer.state != "STOPPED":
                self._give_up_later(peer)

    def _give_up_later(self, peer: Rank) -> None:
        seconds = lognormal(self._stream, HANG_SECONDS, 0.3)
        self._agenda.after(seconds, lambda: self._stops(peer, 134, "EssentialContainerExited: aborted"))

    def _tell(self, rank: Rank, exit_code: int | None = None, reason: str = "") -> None:
        stopped_at = self._agenda.clock() if rank.state == "STOPPED" else None
        placement = f"placement-of-{rank.node.node_id}"
        told = TaskChange(rank.job_id, rank.run, rank.task_id, placement, rank.state, exit_code, reason, stopped_at)
        self.described.note(told, rank.node)
        self.on_task(told)

    # Checkpoints

    def look(self, node: TrueNode, directory: str, request_id: str) -> None:
        """The node looks for the newest checkpoint of the job that writes there."""
        gang = self._gangs.get(directory.rpartition("/")[2])

        def answer() -> None:
            if not node.is_up or gang is None:
                return
            step = int(gang.progress(self._agenda.now, self._work.checkpoint_seconds))
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

    def see(self, node: TrueNode, directory: str, request_id: str) -> None:
        """The node says what it sees there: all see one file system."""

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
