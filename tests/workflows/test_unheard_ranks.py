"""Ranks whose ends nobody tells: their job is brought back all the same, and no sooner than they have ended."""

from nodeheal.adapters.ecs.stop_reasons import causes_of
from nodeheal.contract.vocabulary import JobState
from nodeheal.ports.scheduler import RankStatus
from nodeheal.services.sweep import sweep
from tests.support.builders import scheduler_in
from tests.support.job_cluster import NODES, JobCluster, fails, finishes, is_recovered

A = NODES[0]


class LostEvents(JobCluster):
    """Nothing is told of the ranks on `deaf` nodes; ECS knows how they are where it hears the node."""

    def _ranks_stop(self, request: object) -> None:
        super()._ranks_stop(request)
        self.has_ended(143, "UserInitiated: nodeheal: so")

    _gang_stops = _ranks_stop

    def has_ended(self, exit_code: int, reason: str = "") -> None:
        """The ranks on deaf nodes have, and four minutes later the sweep has run."""
        for task in self.run.tasks:
            if task.node_id in self.deaf:
                told = (exit_code, reason, self.clock(), None, causes_of(reason))
                seen = RankStatus(task.task_id, "STOPPED", True, *told)
                scheduler_in(self.ports).statuses[task.task_id] = seen
        self.clock.advance(240)
        sweep(self.ports, self.policy)


def ends_well(it: JobCluster) -> None:
    """The deaf rank, too."""
    assert isinstance(it, LostEvents)
    it.has_ended(0)


def test_a_job_whose_ranks_ends_are_lost_is_brought_back_and_ends() -> None:
    it = LostEvents()
    it.deaf.add(A)
    it.happenings = [fails(rank=1), is_recovered, finishes, ends_well]

    seen = it.submit()

    assert (seen.end, it.job.state, it.run.number) == ("Completed", JobState.COMPLETED, 2)
    assert it.is_clean


def test_a_job_is_not_brought_back_while_the_node_of_a_rank_is_not_heard() -> None:
    it = JobCluster()
    it.deaf.add(A)
    scheduler_in(it.ports).disconnected.add(f"placement-of-{A}")
    it.happenings = [fails(rank=1), is_recovered]

    it.submit()
    it.clock.advance(7_200)
    sweep(it.ports, it.policy)

    assert it.run.number == 1
    assert [task.has_stopped for task in it.run.tasks] == [False, True]
