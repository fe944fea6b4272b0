"""A function of run_job dies at each of its side effects, once: before it, or right after it.

What provably was not accepted is repeated, and nobody notices. What may have acted is looked at, or a human is paged;
either way nothing runs twice, and nothing is left behind when the ranks have ended and the sweep has passed.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from nodeheal.contract.vocabulary import Verdict
from nodeheal.domain.errors import Conflict, NotAccepted
from nodeheal.services.jobs.submit_job import restart_job, submit_job
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.simulation.hazards import Died
from nodeheal.simulation.injected_failures import How, InjectedFailure
from tests.support.builders import node
from tests.support.fuse import Fuse
from tests.support.job_cluster import NODES, fails, finishes, is_recovered
from tests.support.jobs import ecs_job_of
from tests.support.walker import Error, Walk
from tests.workflows.breaking_job import FusedJob
from tests.workflows.test_fabric_tests import WITH_FABRIC

TOLD_AT_MOST = 3
CALLS, A_TEST = 312, 24  # more than the story makes: a test says so
CALLS_OF_SUBMISSIONS = 4  # two of each command change something
MORE_NODES = ("mi-0000000e", "mi-0000000f")
ENDS = {"Completed", "Escalated", "Job workflow failed"}


class CrashingCluster(FusedJob):
    """A job whose functions have the fuse."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__(fuse, WITH_FABRIC, checkpoints={"directory": "/fsx/llama"})
        self.diagnoses[NODES[0]] = Verdict.FAILED
        self.happenings = [fails(exit_code=139), is_recovered, finishes]

    def _begin(self, names: Sequence[str]) -> None:
        """Two nodes more: a way whose test broke accuses two."""
        super()._begin(names)
        for name in MORE_NODES:
            self.ports.nodes.save(node(name))

    def _job_step(self, state: str, serve: Any) -> Any:
        return super()._job_step(state, self._with_fuse(serve))

    def _job_wait(self, state: str, serve: Any, react: Any) -> Any:
        waits = super()._job_wait(state, self._with_fuse(serve), react)
        return self._as_error(waits)

    def _with_fuse(self, serve: Any) -> Any:
        def served(request: Any) -> Any:
            with self.fuse.working():
                return serve(request)

        return served

    def _job_answers(self) -> dict[str, Any]:
        answers = super()._job_answers()
        return {name: self._as_error(answer) if callable(answer) else answer for name, answer in answers.items()}

    @staticmethod
    def _as_error(answer: Any) -> Any:
        def answered(arguments: Any) -> Any:
            try:
                return answer(arguments)
            except NotAccepted:
                return Error("NotAccepted")
            except Died:
                return Error("Lambda.Unknown")

        return answered


class CrashingNews(CrashingCluster):
    """A job of which the functions break that hear of its ranks and nodes. The bus tells them again."""

    def _wakes(self, take: Any, told: Any) -> None:
        for _ in range(TOLD_AT_MOST):
            try:
                with self.fuse.working(take.__name__):
                    return super()._wakes(take, told)
            except (Died, NotAccepted):
                continue

    def _with_fuse(self, serve: Any) -> Any:
        return serve


class CrashingSubmission(CrashingCluster):
    """The command breaks that submits the job, or starts it once more; whoever gave it gives it again."""

    def submits_twice(self) -> tuple[Walk, Walk]:
        """The job is submitted, and when it has ended it is started once more."""
        job = ecs_job_of(self.spec, "training", "trainer:1", self.clock())
        first = self.gives(lambda: submit_job(job, self.ports, is_idempotent=True))
        self.happenings = [finishes]
        return first, self.gives(lambda: restart_job("llama", self.ports))

    def gives(self, command: Any) -> Walk:
        for _ in range(TOLD_AT_MOST):
            try:
                with self.fuse.working():
                    given = command()
                break
            except (Died, NotAccepted):
                continue
            except Conflict:  # "it is SUBMITTED: stop it first": it was started, or the sweep does that
                given = self.job
                break
        self.clock.advance(120)
        sweep_jobs("demo", self.ports, self.policy)
        assert (given.job_id, given.submission) in self.ports.workflows.jobs_started  # type: ignore[attr-defined]
        return self.walk_job(given.submission)

    def _with_fuse(self, serve: Any) -> Any:
        return serve


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
