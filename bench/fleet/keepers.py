"""Models other keepers of a fleet's jobs for a comparison, each better than its real counterpart.

They keep the simulation's nodes, gangs and faults (planned beforehand, the same as for nodeheal). In their favour: they
know at once, and without a test, which node is broken; they start a job without a preflight, from the true newest
checkpoint; no event of theirs is late or lost, no call fails, no budget or breaker limits them; a fault that passes
diagnostics is fixed for good; a warning never ends a job, and people handle it at no cost.
"""

from dataclasses import dataclass, field

from nodeheal.contract.health_event import HealthEvent
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports.scheduler import TaskChange
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.gang import GangProgress
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.ranks import Ranks
from nodeheal.simulation.setting import DAY, Setting
from nodeheal.simulation.trace import Trace
from nodeheal.simulation.work import NEXT_JOB_SECONDS

BOOT_LIMIT_SECONDS = 1_200.0  # until a rebooted node is given up: as in nodeheal's policy
AGAIN_SECONDS = 15.0  # between two checks whether the old ranks have ended, and the nodes are back


@dataclass
class Crew:
    """A job as its keeper knows it."""

    name: str
    nodes: list[GroundTruth] = field(default_factory=list)
    run: int = 0
    is_down: bool = True
    down_since: float = 0.0
    is_seen_to: bool = True  # somebody has noticed that it is down


class Keeper(Ranks):
    """The common part: place jobs, reboot broken nodes, and have repaired what a reboot did not fix."""

    def __init__(self, setting: Setting) -> None:
        self.agenda, chance = Agenda(), Chance(f"{setting.seed}/{setting.pool}")
        self.fleet = Fleet(setting, self.agenda, chance, Trace(self.agenda))
        super().__init__(setting.work, self.agenda, chance, self.fleet)
        self.setting, self.operators = setting, setting.operators
        self.hands = chance.of("keeper")
        self.crews: dict[str, Crew] = {}
        self.away: set[str] = set()  # nodes on which no job is started
        self.pages = 0
        self._submitted = 0
        self.on_task = self._heard
        self.fleet.on_event, self.fleet.on_exit = self.reported, self.exits
        self.fleet.on_down, self.fleet.on_up = self._went_down, self._came_up
        self.fleet.populate()
        for _ in range(int(setting.nodes * setting.work.share) // setting.work.gang_nodes):
            self.agenda.after(self._stream.uniform(0, 600.0), self._submit)
        self.agenda.after(self.operators.round_seconds, self._round)

    # What each keeper does differently

    def job_failed(self, crew: Crew) -> None:
        """Handle a job that has lost a rank."""
        raise NotImplementedError

    def node_broke(self, node: GroundTruth) -> None:
        """Handle a node that has become unfit."""
        raise NotImplementedError

    def seconds_to_hear(self) -> float:
        """Return the seconds until somebody handles a node that a reboot has not fixed."""
        raise NotImplementedError

    # Jobs

    def _submit(self) -> None:
        self._submitted += 1
        name = f"job-{self._submitted:05d}"
        lasts = lognormal(self._stream, self.setting.work.days * DAY, 0.5)
        self._gangs[name] = GangProgress(name, lasts, self.agenda.now)
        self.crews[name] = Crew(name)
        self.launch(self.crews[name])

    def launch(self, crew: Crew) -> None:
        """Start the job as soon as its old ranks have ended and there are nodes for it."""
        if crew.name not in self.crews or not crew.is_down:
            return
        self.fill_up(crew)
        ranks = self._gangs[crew.name].ranks.values()
        if len(crew.nodes) < self.setting.work.gang_nodes or any(rank.state != "STOPPED" for rank in ranks):
            self.agenda.after(AGAIN_SECONDS, lambda: self.launch(crew))
            return
        self._start(crew)

    def fill_up(self, crew: Crew) -> None:
        """Replace unfit nodes by free ones."""
        crew.nodes = [node for node in crew.nodes if self.is_fit(node)]
        taken = {node.node_id for other in self.crews.values() for node in other.nodes}
        free = (node for node in self.fleet.nodes.values() if node.node_id not in taken and self.is_fit(node))
        crew.nodes += [
            node for node, _ in zip(free, range(self.setting.work.gang_nodes - len(crew.nodes)), strict=False)
        ]

    def _start(self, crew: Crew) -> None:
        crew.run, crew.is_down, gang = crew.run + 1, False, self._gangs[crew.name]
        job = Job(
            crew.name,
            self.setting.pool,
            Cluster(self.setting.scheduler, "training"),
            "trainer:1",
            "trainer",
            len(crew.nodes),
        )
        newest = int(gang.done_seconds)
        run = Run(crew.name, crew.run, self.agenda.clock(), "", (), resumed_from=f"iter_{newest}", resumed_step=newest)
        for rank, node in enumerate(crew.nodes):
            task = GangTask(node.node_id, rank, node.boot_id, f"placement-of-{node.node_id}")
            self.started(job, run, task, f"{crew.name}-{crew.run}-{rank}")

    def _complete(self, gang: GangProgress, run: int) -> None:
        super()._complete(gang, run)
        self._settle(gang)
        del self._gangs[gang.job_id], self.crews[gang.job_id]
        self.agenda.after(lognormal(self._stream, NEXT_JOB_SECONDS, 0.5), self._submit)

    def _heard(self, change: TaskChange) -> None:
        crew = self.crews.get(change.job_id)
        if crew is not None and change.status == "STOPPED" and change.exit_code != 0 and change.run == crew.run:
            self._failed(crew)

    def _failed(self, crew: Crew) -> None:
        if not crew.is_down:
            crew.is_down, crew.is_seen_to, crew.down_since = True, False, self.agenda.now
            self.job_failed(crew)

    def stop(self, crew: Crew) -> None:
        """Stop the job's remaining ranks."""
        for rank in list(self._gangs[crew.name].ranks.values()):
            if rank.state != "STOPPED":
                self.asked_to_stop(rank.task_id, "its keeper restarts it")

    # Nodes

    def is_fit(self, node: GroundTruth) -> bool:
        """Whether a job can run there."""
        return node.node_id not in self.away and not self.is_broken(node)

    def is_broken(self, node: GroundTruth) -> bool:
        """Whether the node is broken: the true state, without a test."""
        return not node.is_up or (node.fault is not None and node.fault.kind.effect != "warns")

    def reported(self, event: HealthEvent) -> None:
        """Handle a fault that the node reports."""
        node = self.fleet.nodes[event.node_id]
        if self.is_broken(node) and node.node_id not in self.away:
            self.node_broke(node)

    def _went_down(self, node: GroundTruth) -> None:
        self.node_down(node)
        for crew in list(self.crews.values()):
            if node in crew.nodes:
                self._failed(crew)
        if node.node_id not in self.away:
            self.node_broke(node)

    def care_for(self, node: GroundTruth) -> None:
        """Take the node out of service, and reboot it."""
        if node.node_id in self.away or not self.is_broken(node):
            return
        self.away.add(node.node_id)
        self.fleet.reboot(node)
        self.agenda.after(BOOT_LIMIT_SECONDS, lambda: None if node.is_up else self._have_repaired(node))

    def _came_up(self, node: GroundTruth) -> None:
        self.node_up(node)
        if node.fault is not None and node.fault.is_shy:
            node.fault = None
        if self.is_broken(node):
            self._have_repaired(node)
        else:
            self.away.discard(node.node_id)

    def _have_repaired(self, node: GroundTruth) -> None:
        self.pages += 1
        repair = lognormal(self.hands, self.operators.repair_seconds, self.operators.spread)
        self.agenda.after(self.seconds_to_hear() + repair, lambda: self._repaired(node))

    def _repaired(self, node: GroundTruth) -> None:
        self.fleet.repair(node)
        self.away.discard(node.node_id)

    def _round(self) -> None:
        """Handle warnings, and find broken nodes that nobody has noticed."""
        for node in self.fleet.nodes.values():
            if node.fault is not None and node.fault.kind.effect == "warns":
                node.fault = None
            if self.is_broken(node):
                self.care_for(node)
        self.agenda.after(self.operators.round_seconds, self._round)


class ByHand(Keeper):
    """A human is paged at once, comes after a while, and restarts the job on any healthy nodes."""

    def _come(self) -> float:
        self.pages += 1
        return lognormal(self.hands, self.operators.page_seconds, self.operators.spread)

    def job_failed(self, crew: Crew) -> None:
        self.agenda.after(self._come(), lambda: self._attend(crew))

    def node_broke(self, node: GroundTruth) -> None:
        self.agenda.after(self._come(), lambda: self.care_for(node))

    def seconds_to_hear(self) -> float:
        return 0.0  # the human has stayed until it runs

    def _attend(self, crew: Crew) -> None:
        for node in crew.nodes:
            self.care_for(node)
        self.stop(crew)
        self.launch(crew)


class PollAndWait(Keeper):
    """Polls; reboots broken nodes, waits for their return, and restarts the job on the same nodes.

    After `wait_seconds` it takes a free node instead, where there is one.
    """

    def __init__(self, setting: Setting, poll_seconds: float = 60.0, wait_seconds: float = 1_800.0) -> None:
        self._poll_seconds, self._wait_seconds = poll_seconds, wait_seconds
        self._unfit: list[GroundTruth] = []  # found at the next poll
        super().__init__(setting)
        self.agenda.after(poll_seconds, self._poll)

    def job_failed(self, crew: Crew) -> None:
        """Wait for the next poll."""

    def node_broke(self, node: GroundTruth) -> None:
        self._unfit.append(node)

    def seconds_to_hear(self) -> float:
        return lognormal(self.hands, self.operators.page_seconds, self.operators.spread)

    def _poll(self) -> None:
        found, self._unfit = self._unfit, []
        for node in found:
            self.care_for(node)
        for crew in list(self.crews.values()):
            if crew.is_down and not crew.is_seen_to:
                crew.is_seen_to = True
                self.stop(crew)
                self.launch(crew)
        self.agenda.after(self._poll_seconds, self._poll)

    def fill_up(self, crew: Crew) -> None:
        if crew.run == 0 or self.agenda.now >= crew.down_since + self._wait_seconds:
            super().fill_up(crew)

    def _start(self, crew: Crew) -> None:
        if all(self.is_fit(node) for node in crew.nodes):
            super()._start(crew)
        else:
            self.agenda.after(AGAIN_SECONDS, lambda: self.launch(crew))
