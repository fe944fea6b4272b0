"""A job whose functions may die at any of their side effects, and a world that reacts to what was done.

Whoever calls a function after it has broken does what AWS does: Step Functions as run_job says; a human gives his
command again.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nodeheal.contract.job_steps import JobRequest
from nodeheal.domain.errors import NotAccepted, Superseded
from nodeheal.domain.operation import job_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.engine import reconcile_all
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.services.operators.ask_to_stop import ask_to_stop
from nodeheal.simulation.hazards import AnswerLost, Died
from nodeheal.simulation.injected_failures import InjectedFailure
from tests.support.builders import ACT
from tests.support.fuse import Fuse, fused
from tests.support.job_cluster import Happening, JobCluster
from tests.support.walker import TIMEOUT, Error, Walk
from tests.workflows.watched import AgendaClock, WatchedMemory

Json = dict[str, Any]
GIVEN_AT_MOST = 3  # a human tires


class FusedJob(JobCluster):
    """A job whose ports have the fuse."""

    def __init__(self, fuse: Fuse, policy: RecoveryPolicy = ACT, **spec_of: Any) -> None:
        self.fuse = fuse
        super().__init__(policy=policy, make_ports=self._fused, **spec_of)

    make_clock = AgendaClock

    def _fused(self, clock: AgendaClock) -> Ports:
        self.memory = WatchedMemory(clock, self.policy)
        self.plain = self.memory.ports
        return fused(self.plain, self.fuse)

    @property
    def alive(self) -> list[tuple[int, int]]:
        """(run, rank) of every task that was started and has not ended."""
        runs = self.ports.jobs.runs("llama")
        return [(run.number, t.rank) for run in runs for t in run.tasks if t.task_id and not t.has_stopped]

    def settle(self) -> None:
        """What a human and the minutes do: the ranks that nobody watches end, and the sweep passes."""
        for run in self.ports.jobs.runs("llama"):
            self._end_of(run.number)
        self.clock.advance(120)
        sweep_jobs("demo", self.ports, self.policy)

    def _end_of(self, number: int) -> None:
        run = self.ports.jobs.get_run("llama", number)
        for task in run.tasks if run else ():
            if task.task_id and not task.has_stopped:
                told = TaskChange("llama", number, task.task_id, task.placement, "STOPPED", 143, "", self.clock())
                wakeup.on_task_change(told, self.ports)


class BreakingJob(FusedJob):
    """What is wrong with what is done is noted at once, in `wrong`."""

    def __init__(self, fuse: Fuse, policy: RecoveryPolicy = ACT, **spec_of: Any) -> None:
        self.wrong: list[str] = []
        self._later: list[Callable[[], object]] = []  # what the world still has to say
        super().__init__(fuse, policy, **spec_of)
        self.fuse.watch = self._watch
        self.on_wait = lambda: None  # an incident that waits for a slot of the budget does so until its deadline

    def _watch(self, call: str, given: tuple[Any, ...], named: Json) -> None:
        self.memory.called(call, given)

    # How functions are called

    def _runs(self, function: str, call: Callable[[], Any]) -> Any:
        """What it answers, or the error that Step Functions sees."""
        try:
            with self.fuse.working(function):
                return call()
        except NotAccepted:
            return Error("NotAccepted")
        except AnswerLost:
            self.memory.broke()
            return Error("Lambda.ServiceException")
        except Died as death:
            self.memory.broke()
            return Error("Lambda.Unknown", str(death))
        except Superseded as older:
            return Error("Superseded", str(older))
        except Exception as surprise:
            self.wrong.append(f"{function} raised {surprise!r}")
            return Error(type(surprise).__name__)
        finally:
            self.wrong += self.memory.wrong()

    def _job_step(self, state: str, serve: Callable[[JobRequest], Any]) -> Callable[[Json], Any]:
        def answer(arguments: Json) -> Any:
            self._play_later()
            self._happens_before(state)
            request = JobRequest.model_validate(arguments["Payload"])
            answered = self._runs(_function_of(state), lambda: serve(request))
            return answered if isinstance(answered, Error) else answered.model_dump(mode="json")

        return answer

    def _job_wait(
        self, state: str, serve: Callable[[JobRequest], None], react: Callable[[JobRequest], object]
    ) -> Callable[[Json], Any]:
        def wait(arguments: Json) -> Any:
            self._play_later()
            self._happens_before(state)
            token = f"{self.spec.name}-token-{next(self._job_tokens)}"
            request = JobRequest.model_validate(arguments["Payload"]).model_copy(update={"task_token": token})
            broke = self._runs(_function_of(state), lambda: serve(request))
            if isinstance(broke, Error) and ":dies-" in broke.cause:
                self._later.append(partial(react, request))  # Step Functions hears of the crash before the world acts
            elif broke != Error("NotAccepted"):  # which is repeated before the world has noticed anything
                react(request)
            resumed = self.plain.workflows.resumed.pop(token, None)  # type: ignore[attr-defined]
            self.plain.workflows.expired.add(token)  # type: ignore[attr-defined]
            if resumed is not None:  # a token that was used ends the wait, whatever became of the function
                return resumed.model_dump(mode="json")
            return broke if isinstance(broke, Error) else TIMEOUT

        return wait

    def _play(self, happenings: list[Happening], request: JobRequest) -> None:
        """What was found of its nodes is recovered, and then happens what does."""
        self.recover_all()
        super()._play(happenings, request)

    def _play_later(self) -> None:
        later, self._later = self._later, []
        for each in later:
            each()

    def is_asked_to_stop(self) -> None:
        """A human gives the command, and again where it breaks; then the job's workflow is woken."""
        for _ in range(GIVEN_AT_MOST):
            given = self._runs("ask_to_stop", lambda: ask_to_stop("llama", "ada: enough", self.ports))
            if not isinstance(given, Error):
                break
        reconcile_all(job_owner("llama"), self.plain)

    # What comes after

    def faults(self, seen: Walk) -> list[str]:
        """Everything that is wrong: while it went on, at its end, and when a human and the sweep have seen to it."""
        alive = self.alive
        self._play_later()
        self.settle()
        runs = Counter(number for number, _ in alive)
        nodes = self.plain.nodes.in_pool("demo")
        gang = [self.node(task.node_id) for task in self.run.tasks] if self.job.current_run else []
        opened, started = self.plain.incidents.incidents, self.plain.workflows.started  # type: ignore[attr-defined]
        found = {
            "two runs at a time": len(runs) > 1,
            f"ranks are left: {alive}": bool(alive) and seen.end != "Job workflow failed",
            "the job is not over": not self.job.is_over,
            "nodes are left to it": any(node.job_id or node.claimed_by for node in nodes),
            "its directory is held": bool(self.plain.job_notes.leases),  # type: ignore[attr-defined]
            "a human has it, and was not paged": (seen.end == "Job workflow failed") != ("Page operators" in seen.path),
            "it has run on a node that is accused": seen.end == "Completed"
            and any(node.open_incident for node in gang),
            "an incident has no workflow": set(opened) != set(started),
        }
        return [*self.wrong, *(what for what, is_so in found.items() if is_so)]


def _function_of(state: str) -> str:
    """The function keeps its name where its state has a new one."""
    renamed = {"Wait for nodes": "await_nodes", "Evaluate diagnostics": "judge_checks"}
    return renamed.get(state, state.lower().replace(" ", "_"))


@dataclass(frozen=True)
class JobStory:
    """A story of a job. `end`: its last state where nothing breaks. `only`: which functions are broken.

    `may_end`: how it may end where something does, beside that and in a human's hands.
    """

    name: str
    make: Callable[[Fuse], BreakingJob]
    end: str
    only: tuple[str, ...]
    may_end: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def told(story: JobStory, *injected_failures: InjectedFailure) -> tuple[BreakingJob, Walk, list[str]]:
    """The job, submitted with these breaks in it, how it ended, and what is wrong after it."""
    it = story.make(Fuse(injected_failures, writes_only=True))
    seen = it.submit()
    return it, seen, it.faults(seen)
