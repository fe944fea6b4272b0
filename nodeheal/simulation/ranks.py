"""Simulates the ranks of gangs and their ends, independently of the control plane's records.

A rank writes from its start until it has ended or its node has gone down. Two runs of one job that write at the same
time are the one thing that must never happen.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from nodeheal.adapters.ecs.stop_reasons import STOPPED_BY_REQUEST, causes_of
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports.scheduler import TaskChange
from nodeheal.simulation.agenda import EPOCH, Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.described import Described
from nodeheal.simulation.faults import Kind
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.gang import GangProgress, Rank
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.setting import Work

if TYPE_CHECKING:
    from collections.abc import Callable

START_SECONDS, GRACE_SECONDS, HANG_SECONDS = 40.0, 15.0, 300.0  # medians: image pulled, SIGTERM obeyed, peers given up
DONE_SECONDS = 60.0  # a program without remaining work
_MID_TERM = 143
CAUSES = ("productive", "recomputed", "writing", "waiting", "down")


class Ranks:
    """The ranks of every gang of the pool, and the account of the gangs' time."""

    def __init__(self, work: Work, agenda: Agenda, chance: Chance, fleet: Fleet) -> None:
        self._work, self._agenda, self._fleet = work, agenda, fleet
        self._stream = chance.of("work")
        self._gangs: dict[str, GangProgress] = {}
        self._on_node: dict[str, list[Rank]] = {}
        self.seconds: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
        self.described = Described(agenda, fleet)
        self.on_task: Callable[[TaskChange], None] = lambda change: None
        self.on_doubled: Callable[[str, str], None] = lambda job_id, text: None
        self.on_shared: Callable[[str, str], None] = lambda node_id, text: None

    def so_far(self) -> dict[str, float]:
        """Return the time of all jobs until now, in seconds by cause."""
        spent = [gang.so_far(self._agenda.now, self._work) for gang in self._gangs.values()]
        return {cause: self.seconds[cause] + sum(account[cause] for account in spent) for cause in CAUSES}

    def ranks_left(self) -> set[str]:
        """Return the jobs with a rank anywhere, including dark nodes."""
        return {rank.job_id for ranks in self._on_node.values() for rank in ranks}

    def alive(self) -> list[TaskChange]:
        """Return every rank as the scheduler lists it. Not one that was to end on a machine that is down since."""
        there = [rank for ranks in self._on_node.values() for rank in ranks]
        return [
            TaskChange(rank.job_id, rank.run, rank.task_id, f"placement-of-{rank.node.node_id}", "RUNNING", None, "")
            for rank in there
            if rank.node.is_up or not rank.is_unwanted
        ]

    def finish(self) -> None:
        """End the simulation: account the time of the running jobs."""
        for gang in self._gangs.values():
            self._settle(gang)

    def _settle(self, gang: GangProgress) -> None:
        """Account the gang's time."""
        spent = gang.account(self._agenda.now, self._work)
        self.seconds = {cause: self.seconds[cause] + seconds for cause, seconds in spent.items()}

    def started(self, job: Job, run: Run, task: GangTask, task_id: str) -> None:
        """Start a rank."""
        node = self._fleet.nodes[task.node_id]
        rank = Rank(job.job_id, run.number, node, node.boot, task_id)
        for other in self._on_node.get(task.node_id, ()):
            if (other.job_id, other.run) == (rank.job_id, rank.run) or other.job_id != rank.job_id:
                text = f"{other.task_id} is {other.state} there, and {task_id} was started beside it"
                self.on_shared(task.node_id, text)
        # A job that was submitted again while it ran, and has finished since: it finds its work done, and ends.
        gang = self._gangs.setdefault(job.job_id, GangProgress(job.job_id, DONE_SECONDS, self._agenda.now))
        if run.number != gang.run:
            gang.leave(self._agenda.now, self._work)
            gang.run, gang.ranks = run.number, {}
            gang.done_seconds = min(gang.done_seconds, float(run.resumed_step or 0)) if run.resumed_from else 0.0
        gang.ranks[task_id] = rank
        self._on_node.setdefault(task.node_id, []).append(rank)
        self._starts(rank)

    def _starts(self, rank: Rank) -> None:
        gang = self._gangs.get(rank.job_id)
        if gang is None:
            self._dies(rank)
            return
        self._agenda.after(lognormal(self._stream, START_SECONDS, 0.4), lambda: self._runs(gang, rank))

    def _runs(self, gang: GangProgress, rank: Rank) -> None:
        if rank.state != "PENDING" or not rank.node.is_up or rank.node.boot != rank.boot:
            return
        rank.state, rank.began_at = "RUNNING", self._agenda.now
        self._look_for_others(gang, rank)
        self._tell(rank)
        mine = [member for member in gang.ranks.values() if member.run == rank.run]
        if rank.run == gang.run and len(mine) == self._work.gang_nodes and all(r.state == "RUNNING" for r in mine):
            gang.running_since = self._agenda.now
            gang.first_ran_at = self._agenda.now if gang.first_ran_at is None else gang.first_ran_at
            gang.end = self._agenda.after(gang.left_seconds(self._work), lambda: self._complete(gang, rank.run))

    def _look_for_others(self, gang: GangProgress, rank: Rank) -> None:
        for ranks in self._on_node.values():
            for other in ranks:
                if other.job_id == gang.job_id and other.run != rank.run and other.state == "RUNNING":
                    text = f"run {rank.run} writes on {rank.node.node_id}, run {other.run} on {other.node.node_id}"
                    self.on_doubled(gang.job_id, text)

    def asked_to_stop(self, task_id: str, reason: str) -> None:
        """Stop a rank."""
        rank = next((member for ranks in self._on_node.values() for member in ranks if member.task_id == task_id), None)
        if rank is not None:
            rank.is_unwanted = True
            text = f"{STOPPED_BY_REQUEST}: {reason}"
            self._agenda.after(lognormal(self._stream, GRACE_SECONDS, 0.4), lambda: self._stops(rank, _MID_TERM, text))

    def _stops(self, rank: Rank, exit_code: int | None, reason: str) -> None:
        """End the rank. On a dark node it cannot be ended, and does not run."""
        if rank.state == "STOPPED" or not rank.node.is_up or rank.node.boot != rank.boot:
            return
        self._dies(rank)
        self._tell(rank, exit_code, reason)

    def _dies(self, rank: Rank) -> None:
        rank.state = "STOPPED"
        self._on_node[rank.node.node_id].remove(rank)
        gang = self._gangs.get(rank.job_id)
        if gang is not None and gang.run == rank.run:
            gang.leave(self._agenda.now, self._work)

    def _complete(self, gang: GangProgress, run: int) -> None:
        gang.leave(self._agenda.now, self._work)
        for rank in [member for member in gang.ranks.values() if member.run == run]:
            self._stops(rank, 0, "EssentialContainerExited")

    def node_down(self, node: GroundTruth) -> None:
        """Kill the node's ranks; their peers hang, and give up after a while."""
        for rank in list(self._on_node.get(node.node_id, ())):
            self._dies(rank)
            self._on_node.setdefault(f"dark {node.node_id}", []).append(rank)
            self._peers_give_up(rank)

    def node_up(self, node: GroundTruth) -> None:
        """Report that the scheduler's agent is back: it reports the tasks that are gone, and gets the calls that were
        sent while it was down.
        """
        for rank in self._on_node.pop(f"dark {node.node_id}", []):
            self._tell(rank, None, "the container instance was restarted")
        for rank in [member for member in self._on_node.get(node.node_id, ()) if member.boot != node.boot]:
            rank.boot = node.boot
            if rank.is_unwanted:
                self._stops(rank, None, f"{STOPPED_BY_REQUEST}: before it had started")
            else:
                self._starts(rank)

    def exits(self, node: GroundTruth, kind: Kind) -> None:
        """End the ranks on this node by a fault; their peers give up."""
        code = int(kind.code.rpartition("_")[2]) if kind.effect == "exits" else 1
        for rank in list(self._on_node.get(node.node_id, ())):
            self._stops(rank, code, "EssentialContainerExited")
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
        began_at = EPOCH + timedelta(seconds=rank.began_at) if rank.began_at is not None else None
        placement = f"placement-of-{rank.node.node_id}"
        ended = (exit_code, reason, stopped_at, began_at, causes_of(reason))
        change = TaskChange(rank.job_id, rank.run, rank.task_id, placement, rank.state, *ended)
        self.described.note(change, rank.node)
        self.on_task(change)
