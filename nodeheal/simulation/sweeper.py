"""Runs the sweep only where it can find something; other runs change nothing.

It can find: a lost start, a free slot or reset breaker without a wakeup, an unannounced boot or end of a job, each
after a failed function or event; a rank with an outdated record; and silence of a dark node. tests/simulation compares
a pool with a sweep every minute, which must give the same result.
"""

from collections.abc import Callable

from nodeheal.domain.fleet.liveness import liveness_of
from nodeheal.ports.scheduler import TaskChange
from nodeheal.ports.storage import JobStore
from nodeheal.services.jobs.ask_after_ranks import LAUNCH_IS_OVER, PATIENCE
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.hazards import Died
from nodeheal.simulation.setting import DAY
from nodeheal.simulation.stores import SimNodes

SWEEP_SECONDS = 60.0
LOOKS_A_MINUTE_APART = 30


class Sweeper:
    """Decides when the sweep runs. It runs once a day in any case."""

    def __init__(
        self,
        agenda: Agenda,
        nodes: SimNodes,
        jobs: JobStore,
        silent_seconds: float,
        sweep: Callable[[], object],
    ) -> None:
        self._agenda, self._nodes, self._jobs, self._sweep = agenda, nodes, jobs, sweep
        self._silent_seconds = silent_seconds
        self._next_at: float | None = None
        self.want()
        agenda.after(DAY, self._daily)

    def want(self) -> None:
        """Run the sweep at the next full minute, and again when lost things are recognised as lost: a start two minutes
        later, a failed launch after an hour and some.
        """
        at = (int(self._agenda.now // SWEEP_SECONDS) + 1) * SWEEP_SECONDS
        if self._next_at is not None and self._agenda.now < self._next_at <= at:
            return
        self._next_at = at
        self._agenda.at(at, self.run)
        self._agenda.at(at + 2 * SWEEP_SECONDS, self.run)
        self._agenda.at(at + LAUNCH_IS_OVER.total_seconds() + 2 * SWEEP_SECONDS, self.run)

    def run(self) -> None:
        """Run the sweep once. A failed run is repeated by the next."""
        try:
            self._sweep()
        except (Exception, Died):
            self.want()

    def run_every_minute(self) -> None:
        """Run the sweep every minute: a restored table is noticed by nothing else."""
        self.run()
        self._agenda.after(SWEEP_SECONDS, self.run_every_minute)

    def fell_silent(self, node: GroundTruth, looks: int = 0) -> None:
        """Schedule the sweep for when a node's silence is detected, and again while it lasts."""

        def look() -> None:
            record = self._nodes.nodes.get(node.node_id)
            if node.is_up or node.is_gone or record is None or not liveness_of(record).is_watched:
                return
            self.want()
            self.fell_silent(node, looks + 1)

        first = self._silent_seconds - SWEEP_SECONDS
        self._agenda.after(first if looks == 0 else SWEEP_SECONDS if looks < LOOKS_A_MINUTE_APART else DAY, look)

    def came_up(self, node: GroundTruth) -> None:
        """Schedule the sweep for a boot: heartbeats show it, where the announcement is late."""
        boot_id = node.boot_id

        def look() -> None:
            record = self._nodes.nodes.get(node.node_id)
            if record is not None and node.is_up and node.boot_id == boot_id != record.boot_id:
                self.want()

        self._agenda.after(1.0, look)

    def rank_changed(self, change: TaskChange, looks: int = 0) -> None:
        """Schedule the sweep for a rank whose change is late, and again until it is recorded."""

        def look() -> None:
            job, run = self._jobs.get(change.job_id), self._jobs.get_run(change.job_id, change.run)
            task = (
                next((rank for rank in run.tasks if rank.task_id == change.task_id), None) if run is not None else None
            )
            is_current = job is not None and job.current_run == change.run and not job.is_over
            if is_current and task is not None and not task.has_stopped and task.status != change.status:
                self.want()
                self.rank_changed(change, looks + 1)

        first = PATIENCE.total_seconds()
        self._agenda.after(first if looks == 0 else SWEEP_SECONDS if looks < LOOKS_A_MINUTE_APART else DAY, look)

    def _daily(self) -> None:
        self.run()
        self._agenda.after(DAY, self._daily)
