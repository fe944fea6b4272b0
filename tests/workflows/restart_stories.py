"""Stories of recoveries that start a job again: what its nodes say before, what its launch meets, and who is told."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.names import TRAINING_HANG
from nodeheal.contract.vocabulary import CheckpointFormat, Family, JobState
from nodeheal.domain.errors import NotAccepted, PlacementRefused
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.jobs.owner import parse_owner
from nodeheal.ports import Ports
from tests.support.builders import scheduler_in, searches_in, stored_job, xid
from tests.support.fake_cluster import BROKEN, PEER
from tests.support.fuse import NEVER, Fuse
from tests.workflows.breaking_world import BreakingWorld, Story

DIRECTORY = "/mnt/llama"
A_HUMANS = "Escalated"
OWNER = parse_owner("ada@example.com")
CHECKPOINTS = Checkpoints(directory=DIRECTORY, format=CheckpointFormat.megatron)


class RestartingWorld(BreakingWorld):
    """A job that has said this of itself."""

    def __init__(self, fuse: Fuse, **of_job: Any) -> None:
        super().__init__(fuse)
        job = stored_job(self.plain, "llama")
        assert self.plain.jobs.save(replace(job, **of_job))
        self.checkpoints, self.shown_step = [(f"{DIRECTORY}/iter_0002000", 2000)], 2037
        self._searched = 0

    def _node_looks(self) -> None:
        """Each search is answered once."""
        searches = searches_in(self.plain)
        if self._searched < len(searches):
            self._searched = len(searches)
            super()._node_looks()

    def _gang_becomes(self, status: str, exit_code: int = 143) -> None:
        """A rank that was asked to stop while the others started does."""
        super()._gang_becomes(status, exit_code)
        if status == "RUNNING":
            self._stops_who_was_asked()

    def _stops_who_was_asked(self) -> None:
        for task_id in list(scheduler_in(self.plain).stopped):
            if task_id in scheduler_in(self.plain).tasks and task_id not in self._gone:
                self._stops(task_id)


class OwnedWorld(RestartingWorld):
    """Its owner is to hear that it has stopped, and what became of it."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__(fuse, owner=OWNER)

    def faults(self) -> list[str]:
        wrong = super().faults()
        keys = [told.key for _, told in self.plain.notifier.announced if told.owner]  # type: ignore[attr-defined]
        is_told = any(key.endswith("RUNS_AGAIN") for key in keys) or self.told_of("owner-not-told")
        return wrong if is_told or self.ends != ("Recovered",) else [*wrong, "nobody knows that its owner was not told"]


def before_call(fuse: Fuse, function: str, call: str, number: int, happens: Callable[[], object]) -> None:
    """Have this happen, once, right before the function makes this call for so manieth time, from 1."""
    again = partial(before_call, fuse, function, call, number - 1, happens)
    fuse.meanwhile[function, call] = happens if number == 1 else again


def refuse(plain: Ports, run: int, times: int) -> None:
    """The scheduler refuses rank 1 of this run, so many times."""
    start, left = scheduler_in(plain).start_rank, [times]

    def starts(job: Job, of: Run, task: GangTask, environment: dict[str, str]) -> str:
        if (of.number, task.rank) == (run, 1) and left[0]:
            left[0] -= 1
            raise PlacementRefused("RESOURCE:GPU")
        return str(start(job, of, task, environment))

    scheduler_in(plain).start_rank = starts


def _falls_off_the_bus(it: BreakingWorld) -> object:
    return it.reports(xid(79))


def _goes_on_from_a_checkpoint(fuse: Fuse) -> BreakingWorld:
    return RestartingWorld(fuse, checkpoints=CHECKPOINTS, hang_seconds=600)


def _its_search_is_throttled(fuse: Fuse) -> BreakingWorld:
    """The one that is made ahead is not taken; the restart's own when it was sent, and before that is on record."""
    it = _goes_on_from_a_checkpoint(fuse)
    fuse.meanwhile["reboot_node", "commands.find-checkpoint"] = _throttled
    before_call(fuse, "find_checkpoint", "operations.save", 3, _throttled)
    return it


def _throttled() -> None:
    raise NotAccepted("too many calls")


def a_rank_of_the_restart_is_refused(fuse: Fuse, times: int = NEVER) -> BreakingWorld:
    """Rank 1 of its second run, by the scheduler; so many times it is."""
    it = RestartingWorld(fuse)
    refuse(it.plain, run=2, times=times)
    return it


def _is_over_before_the_search(fuse: Fuse) -> BreakingWorld:
    """The search ahead is not taken, and the job completes while the node is away: there is nothing to look for."""
    fuse.meanwhile["reboot_node", "commands.find-checkpoint"] = _throttled
    it = RestartingWorld(fuse, checkpoints=CHECKPOINTS)

    def completes() -> None:
        assert it.plain.jobs.save(replace(stored_job(it.plain, "llama"), state=JobState.COMPLETED))

    it.meanwhile["find_checkpoint"] = [completes]
    return it


def _hangs(node_id: str) -> HealthEvent:
    about = {"family": Family.host, "code": TRAINING_HANG, "subcode": None, "component": "llama/1"}
    return xid(0, **about, node_id=node_id, instance_id=node_id, event_id=f"hang-{node_id}")


def _both_say_that_it_hangs(it: BreakingWorld) -> object:
    it.before_walk = [_hangs(PEER)]
    return it.reports(_hangs(BROKEN))


def _world(fuse: Fuse) -> BreakingWorld:
    return RestartingWorld(fuse)


def _story(
    name: str,
    make: Callable[[Fuse], BreakingWorld],
    only: tuple[str, ...],
    end: str = "Recovered",
    tell: Callable[[BreakingWorld], object] = _falls_off_the_bus,
) -> Story:
    return Story(name, make, tell, (end,), only)


def _its_owner_cannot_be_told(fuse: Fuse) -> BreakingWorld:
    """The bus takes no email to the owner: the incident has that on record, and goes on."""
    it = OwnedWorld(fuse)
    it.fuse.throttles("decide_next_step", "notifier.announce")
    return it


RESTARTS = (
    _story("it goes on from a checkpoint", _goes_on_from_a_checkpoint, ("reboot_node", "wakeup.on_answer")),
    _story("the search for a checkpoint is throttled", _its_search_is_throttled, ("find_checkpoint",)),
    _story("its job is over before the search", _is_over_before_the_search, ("find_checkpoint",)),
    _story("a rank is refused", a_rank_of_the_restart_is_refused, ("launch_gang",), A_HUMANS),
    _story("a job hangs on all its nodes", _world, ("ingest",), tell=_both_say_that_it_hangs),
    _story("its owner is told", OwnedWorld, ("decide_next_step", "notify")),
    _story("its owner cannot be told", _its_owner_cannot_be_told, ("decide_next_step",)),
)
