"""A function of run_job dies at each of its side effects, once: before it, or right after it.

What provably was not accepted is repeated, and nobody notices. What may have acted is looked at, or a human is paged;
either way nothing runs twice, and nothing is left behind when the ranks have ended and the sweep has passed.
"""

import pytest

from nodeheal.simulation.injected_failures import How, InjectedFailure
from tests.support.fuse import Fuse
from tests.workflows.crashing_cluster import CrashingCluster, CrashingNews, CrashingSubmission

CALLS, A_TEST = 312, 24  # more than the story makes: a test says so
CALLS_OF_SUBMISSIONS = 4  # two of each command change something
ENDS = {"Completed", "Escalated", "Job workflow failed"}


def test_the_story_without_a_crash_makes_fewer_calls_than_are_tried() -> None:
    it = CrashingCluster(Fuse())

    seen = it.submit()

    assert seen.end == "Completed"
    assert 264 < it.fuse.calls < CALLS


@pytest.mark.parametrize("first", range(0, CALLS, A_TEST))
def test_what_was_not_accepted_is_done_again_and_nobody_notices(first: int) -> None:
    for at in range(first + 1, first + 1 + A_TEST):
        it = CrashingCluster(Fuse((InjectedFailure(at, How.throttled),)))

        seen = it.submit()

        assert (seen.end, it.run.number, it.is_clean) == ("Completed", 2, True), f"before call {at}"


@pytest.mark.parametrize("how", [How.dies_before, How.dies_after])
@pytest.mark.parametrize("first", range(0, CALLS, A_TEST))
def test_after_a_crash_nothing_runs_twice_and_nothing_is_left(first: int, how: How) -> None:
    for at in range(first + 1, first + 1 + A_TEST):
        it = CrashingCluster(Fuse((InjectedFailure(at, how),)))

        seen = it.submit()
        alive = it.alive
        it.settle()

        where = str(InjectedFailure(at, how))
        assert seen.end in ENDS, where
        assert len({number for number, _ in alive}) <= 1, f"two runs at a time, {where}"
        assert it.job.is_over, where
        marks = [n.node_id for n in it.ports.nodes.in_pool("demo") if n.job_id or n.claimed_by]
        assert (marks, it.ports.job_notes.leases) == ([], {}), where  # type: ignore[attr-defined]
        assert (seen.end == "Job workflow failed") == ("Page operators" in seen.path), where
        assert seen.end == "Job workflow failed" or alive == [], where


@pytest.mark.parametrize("how", [How.dies_after, How.throttled_after])
def test_whoever_hears_of_ranks_and_nodes_may_break_and_hears_it_again(how: How) -> None:
    whole = CrashingNews(Fuse(writes_only=True))
    whole.submit()

    for at in range(1, whole.fuse.calls + 1):
        it = CrashingNews(Fuse((InjectedFailure(at, how),), writes_only=True))

        seen = it.submit()

        assert (seen.end, it.run.number, it.is_clean) == ("Completed", 2, True), f"{whole.fuse.made[at - 1]}"
    assert whole.fuse.calls > 40


@pytest.mark.parametrize("how", [How.dies_before, How.dies_after, How.throttled, How.throttled_after])
def test_a_job_that_is_submitted_again_after_a_break_and_then_restarted_runs_once_each_time(how: How) -> None:
    for at in range(1, CALLS_OF_SUBMISSIONS + 1):
        it = CrashingSubmission(Fuse((InjectedFailure(at, how),), writes_only=True))

        seen, again = it.submits_twice()

        assert (seen.end, again.end, it.run.number, it.is_clean) == ("Completed", "Completed", 3, True), at
        assert at <= it.fuse.calls
