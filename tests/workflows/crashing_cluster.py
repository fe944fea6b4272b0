"""A job's cluster whose functions break."""

from collections.abc import Sequence
from typing import Any

from nodeheal.contract.vocabulary import Verdict
from nodeheal.domain.errors import Conflict, NotAccepted
from nodeheal.services.jobs.submit_job import restart_job, submit_job
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.simulation.hazards import Died
from tests.support.builders import node
from tests.support.fuse import Fuse
from tests.support.job_cluster import NODES, fails, finishes, is_recovered
from tests.support.jobs import ecs_job_of
from tests.support.policies import WITH_FABRIC
from tests.support.walker import Error, Walk
from tests.workflows.breaking_job import FusedJob

TOLD_AT_MOST = 3


MORE_NODES = ("mi-0000000e", "mi-0000000f")


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
