"""A scheduler that refuses a rank takes the gang down: whatever is throttled meanwhile, no other rank is started."""

import pytest

from nodeheal.domain.errors import NotAccepted
from tests.support.builders import scheduler_in, xid
from tests.support.fuse import Fuse
from tests.support.job_cluster import finishes
from tests.workflows.job_stories import a_rank_of_the_job_is_refused
from tests.workflows.restart_stories import a_rank_of_the_restart_is_refused

MOMENTS = ["scheduler.stop_rank", "operations.save", "jobs.save"]


def _throttled() -> None:
    raise NotAccepted("too many calls")


@pytest.mark.parametrize("call", MOMENTS)
def test_a_launch_that_is_called_again_goes_on_to_take_the_refused_gang_down(call: str) -> None:
    it = a_rank_of_the_job_is_refused(Fuse(writes_only=True), times=1)
    it.happenings = [finishes]
    when_refused = scheduler_in(it.plain).start_rank
    scheduler = scheduler_in(it.plain)

    def start(job, run, task, environment):  # type: ignore[no-untyped-def]
        if task.rank == 1 and run.number == 1:
            it.fuse.meanwhile["launch_job", call] = _throttled
        return when_refused(job, run, task, environment)

    scheduler.start_rank = start

    seen = it.submit()

    assert (seen.end, seen.path.count("Launch job"), it.run.number) == ("Completed", 2, 2)
    assert set(scheduler.stopped) == {"task-llama-1-0"}
    assert "task-llama-1-1" not in scheduler.tasks
    assert it.fuse.meanwhile == {}


@pytest.mark.parametrize("call", MOMENTS)
def test_a_restart_that_is_called_again_goes_on_to_take_the_refused_gang_down(call: str) -> None:
    it = a_rank_of_the_restart_is_refused(Fuse(writes_only=True), times=1)
    scheduler = scheduler_in(it.plain)
    when_refused = scheduler.start_rank

    def start(job, run, task, environment):  # type: ignore[no-untyped-def]
        if task.rank == 1 and run.number == 2:
            it.fuse.meanwhile["launch_gang", call] = _throttled
        return when_refused(job, run, task, environment)

    scheduler.start_rank = start

    it.reports(xid(79))

    assert "task-llama-2-0" in scheduler.stopped
    assert "task-llama-2-1" not in scheduler.tasks
    assert it.fuse.meanwhile == {}
