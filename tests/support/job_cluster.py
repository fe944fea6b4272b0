"""A job from its submission to its end: the real run_job file, walked over real services, and a world that reacts.

What happens while the gang is watched is a list of happenings, played one by one until the wait is resumed. An incident
that the job's workflow opens is recovered by the real recover_node, walked inside of that wait.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.ecs.stop_reasons import causes_of
from nodeheal.adapters.memory.world import SentCommand
from nodeheal.contract.acts import StopJob
from nodeheal.contract.health_event import CheckpointFound, DiagnosticsFinished, Sight
from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import CheckpointFormat, FabricRole, JobState, JobStep, Next, Outcome, Verdict
from nodeheal.domain.errors import Superseded
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.operation import job_owner, node_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.steps import await_nodes, check_nodes, launch_job, stop_job, watch_gang
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs.attribute_failure import attribute_failure
from nodeheal.services.jobs.choose_nodes import choose_nodes
from nodeheal.services.jobs.end_job import end_job
from nodeheal.services.jobs.find_checkpoint import find_checkpoint
from nodeheal.services.jobs.judge_checks import judge_checks
from nodeheal.services.jobs.submit_job import submit_job
from tests.support.acts import does
from tests.support.builders import (
    ACT,
    CHECK,
    NOW,
    commands_in,
    memory_ports,
    named,
    node,
    scheduler_in,
    searches_in,
    stored_job,
    stored_run,
    xid,
)
from tests.support.fake_cluster import FakeCluster, MakePorts
from tests.support.jobs import ecs_job_of
from tests.support.walker import TIMEOUT, Error, Walk

if TYPE_CHECKING:
    from nodeheal.domain.fleet.node import Node

Json = dict[str, Any]
Happening = Callable[["JobCluster"], object]
NODES = ("mi-0000000a", "mi-0000000b", "mi-0000000c", "mi-0000000d")
SHARED = Sight(file_system="nfs4", source="fs-1:/", inode=64, device=50)
SPEC = JobSpec(name="llama", pool="demo", nodes=2, task_definition="trainer:1", owner="ada@example.com")


def spec(**changes: Any) -> JobSpec:
    """The job of most tests, with changes."""
    return JobSpec.model_validate({**SPEC.model_dump(exclude_none=True), **changes})


class JobCluster(FakeCluster):
    """Four nodes and no job. Attributes say how the world behaves."""

    def __init__(
        self, pool_of: int = 4, policy: RecoveryPolicy = ACT, make_ports: "MakePorts" = memory_ports, **spec_of: Any
    ) -> None:
        self._count = pool_of
        self.spec = spec(**spec_of)
        self.happenings: list[Happening] = []
        self.while_waiting: list[Happening] = []  # what happens while the job stands in line for nodes
        self.never_start: set[str] = set()  # nodes on which a task stays PENDING
        self.before: dict[str, Happening] = {}  # by state: what happens right before its function is called
        self.job_breaks: dict[str, Error | Callable[[Json], Error]] = {}
        self.recovered: list[str] = []
        self.broken_links: set[frozenset[str]] = set()  # pairs of nodes that do not reach one another
        self._ways_answered = 0
        self.sees: dict[str, Sight | str] = {}  # by node: what it sees where checkpoints are, or why it cannot tell
        self.sees_later: dict[str, Sight] = {}  # the same, at the second look
        self.too_old: set[str] = set()  # nodes whose agents do not know how to say that
        self._sights_answered = 0
        self._job_tokens = count()
        super().__init__(policy, make_ports=make_ports)

    def _begin(self, names: Sequence[str]) -> None:
        for name in NODES[: self._count]:
            self.ports.nodes.save(node(name))

    def submit(self) -> Walk:
        """The job is submitted, and its workflow is walked to its end."""
        job = ecs_job_of(self.spec, "training", "trainer:1", self.clock())
        submitted = submit_job(job, self.ports)
        return self.walk_job(submitted.submission)

    def walk_job(self, submission: int = 1) -> Walk:
        """The workflow of one submission, from its beginning."""
        return self._walk("run_job", {"job_id": self.spec.name, "submission": submission}, self._job_answers())

    @property
    def job(self) -> Job:
        """The job as recorded."""
        return stored_job(self.ports, self.spec.name)

    @property
    def run(self) -> Run:
        """Its newest run."""
        return stored_run(self.ports, self.spec.name, self.job.current_run)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left of the job: no node, no claim, no rank, no wait, no directory."""
        nodes = self.ports.nodes.in_pool("demo")
        marks = [n.node_id for n in nodes if n.job_id == self.spec.name or n.claimed_by == self.spec.name]
        alive = [t for run in self.ports.jobs.runs(self.spec.name) for t in run.tasks if not t.has_stopped]
        waits = self.ports.operations.open_of(job_owner(self.spec.name))
        return not (marks or alive or waits or self.ports.job_notes.leases)  # type: ignore[attr-defined]

    # What may happen

    def becomes(self, rank: int, status: str, exit_code: int | None = None, reason: str = "") -> None:
        """One rank's task changes its state."""
        run, task = self.run, self.run.tasks[rank]
        told = (exit_code, reason, self.clock(), None, causes_of(reason))
        change = TaskChange(run.job_id, run.number, task.task_id, task.placement, status, *told)
        self._wakes(wakeup.on_task_change, change)

    def all_become(self, status: str, exit_code: int | None = None, reason: str = "") -> None:
        """Every rank that lives changes its state."""
        for task in self.run.tasks:
            if not task.has_stopped and task.node_id not in self.deaf:
                self.becomes(task.rank, status, exit_code, reason)

    def recover_all(self) -> None:
        """Every incident whose workflow was started is walked to its end, once."""
        for incident_id in [i for i in self.ports.workflows.started if self._is_mine(i)]:  # type: ignore[attr-defined]
            self.recovered.append(incident_id)
            self.incident_id = incident_id
            self._walk("recover_node", {"incident_id": incident_id}, self._answers())

    def _is_mine(self, incident_id: str) -> bool:
        return incident_id not in self.recovered

    def _gang_becomes(self, status: str, exit_code: int = 143) -> None:
        self.all_become(status, exit_code)

    # The workflow's functions

    def _job_answers(self) -> Json:
        policy = self.policy
        answers: Json = {
            "Choose nodes": self._job_step("Choose nodes", lambda r: choose_nodes(r, self.ports, policy)),
            "Wait for nodes": self._job_wait(
                "Wait for nodes",
                lambda r: await_nodes(r, self.ports, policy),
                lambda r: self._play(self.while_waiting, r),
            ),
            "Check nodes": self._job_wait(
                "Check nodes", lambda r: check_nodes(r, self.ports, policy), self._nodes_answer
            ),
            "Evaluate diagnostics": self._job_step(
                "Evaluate diagnostics", lambda r: judge_checks(r, self.ports, policy)
            ),
            "Find checkpoint": self._job_wait(
                "Find checkpoint", lambda r: find_checkpoint(r, self.ports, policy), lambda _: self._somebody_looks()
            ),
            "Launch job": self._job_wait("Launch job", lambda r: launch_job(r, self.ports, policy), self._ranks_start),
            "Watch gang": self._job_wait(
                "Watch gang", lambda r: watch_gang(r, self.ports), lambda r: self._play(self.happenings, r)
            ),
            "Attribute failure": self._job_step(
                "Attribute failure", lambda r: attribute_failure(r, self.ports, policy)
            ),
            "Stop job": self._job_wait("Stop job", lambda r: stop_job(r, self.ports), self._ranks_stop),
            "End job": self._job_step("End job", lambda r: end_job(r, self.ports)),
            "Page operators": {"MessageId": "m"},
            "Mark job escalated": self._job_is_a_humans,
        }
        return {**answers, **self.job_breaks}

    def _job_step(self, state: str, serve: Callable[[JobRequest], Any]) -> Callable[[Json], Any]:
        def answer(arguments: Json) -> Any:
            self._happens_before(state)
            try:
                return serve(JobRequest.model_validate(arguments["Payload"])).model_dump(mode="json")
            except Superseded as error:
                return Error(type(error).__name__, str(error))

        return answer

    def _job_wait(
        self, state: str, serve: Callable[[JobRequest], None], react: Callable[[JobRequest], object]
    ) -> Callable[[Json], Any]:
        def wait(arguments: Json) -> Any:
            self._happens_before(state)
            token = f"{self.spec.name}-token-{next(self._job_tokens)}"
            request = JobRequest.model_validate(arguments["Payload"]).model_copy(update={"task_token": token})
            try:
                serve(request)
            except Superseded as error:
                return Error(type(error).__name__, str(error))
            react(request)
            resumed = self.ports.workflows.resumed.pop(token, None)  # type: ignore[attr-defined]
            return TIMEOUT if resumed is None else resumed.model_dump(mode="json")

        return wait

    def _happens_before(self, state: str) -> None:
        happening = self.before.pop(state, None)
        if happening is not None:
            happening(self)

    def _play(self, happenings: list[Happening], request: JobRequest) -> None:
        while happenings and request.task_token not in self.ports.workflows.resumed:  # type: ignore[attr-defined]
            happenings.pop(0)(self)

    def _nodes_answer(self, request: JobRequest) -> None:
        """Each node that was asked answers, but the ones that hang."""
        if request.is_of_pairs:
            self._ways_answer()
            return
        asked = f"{request.job_id}-{request.submission}-{request.round}-check"
        for name in request.nodes:
            if name in self.hangs or self.ports.operations.get(node_owner(name), asked) is None:
                continue
            verdict = self.diagnoses.get(name, Verdict.OK)
            event = DiagnosticsFinished(
                **self._fact(name, self.node(name).boot_id),
                request_id=named(CHECK, asked, self.ports, name),
                verdict=verdict,
                failed_tests=("memory",) if verdict is Verdict.FAILED else (),
            )
            self._wakes(wakeup.on_answer, event)
        if self.hangs.intersection(request.nodes):
            self.clock.advance(self.job.preflight.seconds)  # who is silent is silent for all of the preflight's time

    def _ways_answer(self) -> None:
        """Each node says what it has seen of its way; the one that serves sees nothing of one that is broken."""
        ways = commands_in(self.ports).sent_of("test-fabric")
        asked, self._ways_answered = ways[self._ways_answered :], len(ways)
        for sent in asked:
            is_broken = frozenset((sent.node_id, self._peer_of(sent, asked))) in self.broken_links
            seen = Verdict.FAILED if sent.parameters["Role"] == FabricRole.CONNECT else Verdict.UNKNOWN
            if sent.node_id not in self.hangs:
                event = DiagnosticsFinished(
                    **self._fact(sent.node_id, sent.boot_id),
                    request_id=sent.request_id,
                    verdict=seen if is_broken else Verdict.OK,
                    evidence="nobody answers" if is_broken else "1 MiB at 11,000 MB/s",
                )
                self._wakes(wakeup.on_answer, event)

    def _somebody_looks(self) -> None:
        """Either all nodes say what they see, or one of them searches."""
        sights = self.asked_for_sights()
        asked, self._sights_answered = sights[self._sights_answered :], len(sights)
        for sent in asked:
            self._says_what_it_sees(sent)
        if not asked and searches_in(self.ports):
            self._node_looks()

    def asked_for_sights(self) -> list[SentCommand]:
        """Who was asked what it sees at the directory."""
        return [sent for sent in commands_in(self.ports).sent_of("find-checkpoint") if "SightAfter" in sent.parameters]

    def _says_what_it_sees(self, sent: SentCommand) -> None:
        name, request_id, after = sent.node_id, sent.request_id, int(sent.parameters["SightAfter"])
        if name in self.too_old:
            wakeup.on_command_failed(name, self._command_of(request_id), self.ports)
            return
        at_first = self.sees.get(name, SHARED)
        seen = self.sees_later.get(name, at_first) if after else at_first
        if name in self.hangs:
            return
        event = CheckpointFound(
            **self._fact(name, self.node(name).boot_id),
            request_id=request_id,
            directory="/mnt/llama",
            format=CheckpointFormat.auto,
            sight=seen if isinstance(seen, Sight) else None,
            reason=seen if isinstance(seen, str) else "",
        )
        self._wakes(wakeup.on_answer, event)

    def _command_of(self, request_id: str) -> str:
        asked = self.ports.operations.operations.values()  # type: ignore[attr-defined]
        return next((str(one.reference) for one in asked if one.request_id == request_id), "")

    @staticmethod
    def _peer_of(one: SentCommand, asked: Sequence[SentCommand]) -> str:
        others = (other for other in asked if other.node_id != one.node_id)
        pair = one.request_id.rsplit("-", 1)[0]
        return next((other.node_id for other in others if other.request_id.rsplit("-", 1)[0] == pair), "")

    def _ranks_start(self, request: JobRequest) -> None:
        if self.job.state is JobState.RUNNING and self.job.current_run:
            for task in self.run.tasks:
                if task.node_id not in self.never_start and not task.has_stopped:
                    self.becomes(task.rank, "RUNNING")

    def _ranks_stop(self, request: object) -> None:
        """Who was asked to stop does, and nobody else."""
        asked = scheduler_in(self.ports).stopped
        for task in self.run.tasks if self.job.current_run else ():
            if task.task_id in asked and not task.has_stopped and task.node_id not in self.deaf:
                self.becomes(task.rank, "STOPPED", 143, f"UserInitiated: {asked[task.task_id]}")

    _gang_stops = _ranks_stop  # of recoveries, too

    def _job_is_a_humans(self, arguments: Json) -> Any:
        """As the state machine writes it: past the store, and so past the index. Not over an end that was reached."""
        if self.job.state in (JobState.COMPLETED, JobState.CANCELLED):
            return Error("DynamoDB.ConditionalCheckFailedException")
        job = replace(self.job, state=JobState.FAILED, version=self.job.version + 1)
        self.ports.jobs.jobs["llama"] = job  # type: ignore[attr-defined]
        return {}


def finishes(it: JobCluster) -> None:
    """Every rank ends well."""
    it.all_become("STOPPED", 0)


def fails(rank: int = 1, exit_code: int | None = 1, reason: str = "EssentialContainerExited") -> Happening:
    """One rank breaks; the others hang, as collectives do."""
    return lambda it: it.becomes(rank, "STOPPED", exit_code, reason)


def is_recovered(it: JobCluster) -> None:
    """The incidents that are open are walked to their ends."""
    it.recover_all()


def node_of(it: JobCluster, rank: int) -> "Node":
    """The node of a rank, as it is now."""
    return it.node(it.run.tasks[rank].node_id)


def wants_it_stopped(it: JobCluster) -> None:
    """An operator asks for the job to be stopped."""
    does(StopJob(job="llama", why="enough"), it.ports, it.policy)


def falls_off_the_bus(name: str) -> Happening:
    """A node of the gang breaks, and its rank dies of it."""

    def happens(it: JobCluster) -> None:
        it._ingest(xid(79, node_id=name, instance_id=name, event_id=f"fault-of-{name}"))

    return happens


WHY = f"rank 1 on {NODES[1]} ended with exit code 1"


def ends(ports: Ports, ending: JobState, **said: Any) -> JobResult:
    last = JobResult(
        step=JobStep.STOP,
        job_id="llama",
        outcome=Outcome.DONE,
        then=Next.END,
        reason=WHY,
        finished_at=NOW,
        ending=ending,
        **said,
    )
    return end_job(JobRequest(job_id="llama", submission=1, round=4, last=last), ports)
