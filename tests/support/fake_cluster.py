"""The whole control plane without a cloud: the real ASL files, walked; real services; a world in memory that reacts.

A wait is resumed as soon as the step has been sent, by what the node or the scheduler does then. Where nothing resumes
it, its deadline passes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from nodeheal.contract.health_event import (
    CheckpointFound,
    CheckResult,
    DiagnosticsFinished,
    EvidenceFrozen,
    HealthEvent,
    NodeBooted,
)
from nodeheal.contract.names import evidence_key
from nodeheal.contract.steps import DecideRequest, Decision, StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    Check,
    CheckpointFormat,
    Confirmation,
    IncidentState,
    JobState,
    Outcome,
    Verdict,
)
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Links
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.reset_gpu import GpuResetFinished, NodeOutcome
from nodeheal.operations.steps import launch_gang, stop_gang, wait_for_approval
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.find_checkpoint import find_checkpoint
from nodeheal.services.recovery.decide_next_step import decide_at_once, decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.return_to_service import return_to_service
from nodeheal.services.recovery.wait_for_news import wait_for_news
from tests.support.builders import (
    ACT,
    DIAGNOSTICS,
    EVIDENCE,
    SHARED_FACTS,
    FrozenClock,
    commands_in,
    memory_ports,
    named,
    node,
    request_id_of,
    scheduler_in,
    searches_in,
    started_job,
    stored_job,
    stored_node,
    stored_run,
    take_diagnostics,
    turn_of,
    xid,
)
from tests.support.jobs import ecs_job
from tests.support.step_functions import freeze_evidence, isolate_node, reboot_node, replace_node, run_diagnostics
from tests.support.walker import TIMEOUT, Error, Walk, walk

if TYPE_CHECKING:
    from nodeheal.ports import Ports

Json = dict[str, Any]
MakePorts = Callable[[Any], "Ports"]  # with the clock that the class makes
BROKEN, PEER, SPARE = "mi-0a1b2c3d4e5f60718", "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"


CONFIRMED_BY = "the kernel log (/dev/kmsg): NVRM: Xid"  # where a node says that it has looked
LINKS = Links("https://approve.example/approval", b"key")


class FakeCluster:
    """A job on two nodes and a spare. Attributes say how the world behaves from now on."""

    make_clock: Callable[[], FrozenClock] = FrozenClock
    takes_diagnostics = False  # the node runs by itself what a reboot has left; False: as one of an older agent

    def __init__(self, policy: RecoveryPolicy = ACT, spare: bool = True, make_ports: MakePorts = memory_ports) -> None:
        self.clock = self.make_clock()
        self.policy = policy
        self.ports: Ports = make_ports(self.clock)
        self.walked: list[Walk] = []  # every execution
        self.heard: Counter[str] = Counter()  # events that came, by who sends them
        self.node_returns = True
        self.diagnoses: dict[str, Verdict] = {}  # by node; OK where nothing is said; a node in `hangs` never answers
        self.hangs: set[str] = set()
        self.confirms = Confirmation.CONFIRMED  # what a node answers that is asked about its fault
        self.deaf: set[str] = set()  # nodes whose tasks do not stop
        self.after_reboot: list[HealthEvent] = []
        self.resets: NodeOutcome | None = Outcome.DONE  # what a node says of its GPU's reset; None: nothing
        self.after_reset: list[HealthEvent] = []
        self.on_wait: Callable[[], object] = self._gang_finishes  # what happens while an incident waits for news
        self.on_question: Callable[[StepRequest], None] = lambda _: None  # a human is asked; silence unless told
        self.on_replace: Callable[[StepRequest], None] = lambda _: None  # what comes of asking for a new machine
        self.knows_no_distrust: set[str] = set()  # nodes whose agents are too old to leave a checkpoint out
        self.checkpoints: list[tuple[str, int]] = []  # what a node that is asked finds: the last of them is the newest
        self.shown_step: int | None = None  # the last one that the run before has shown on the node that is asked
        self._looked = 0  # how many searches were seen
        self.blind: set[str] = set()  # nodes that cannot tell, and say so
        self.before_walk: list[HealthEvent] = []  # what arrives before the first decision
        self._tokens = count()
        self.breaks: dict[str, Error] = {}  # states whose function breaks, and how
        self._begin((BROKEN, PEER, SPARE)[: 3 if spare else 2])

    def _begin(self, names: Sequence[str]) -> None:
        for name in names:
            self.ports.nodes.save(node(name))
        job = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, submission=1)
        started_job(job, [self.node(BROKEN), self.node(PEER)], self.ports)
        self._gang_becomes("RUNNING")

    def node(self, name: str = BROKEN) -> Node:
        return stored_node(self.ports, name)

    def reports(self, event: HealthEvent) -> Walk:
        """The event arrives, and the incident that it opens is walked to its end."""
        self._ingest(event)
        return self.walks(incident_id_of(event))

    def walks(self, incident_id: str) -> Walk:
        """The incident is walked to its end."""
        self.incident_id = incident_id
        for more in self.before_walk:
            self._ingest(more)
        return self._walk("recover_node", {"incident_id": self.incident_id}, self._answers())

    @property
    def job_nodes(self) -> list[str]:
        """Where the job runs now; empty when it does not."""
        job = stored_job(self.ports, "llama")
        run = stored_run(self.ports, "llama", job.current_run)
        return [task.node_id for task in run.tasks] if run.is_running and job.state is JobState.RUNNING else []

    @property
    def commands(self) -> list[tuple[str, str]]:
        """What nodes were made to do, in order."""
        return [(sent.document, sent.node_id) for sent in commands_in(self.ports).sent]

    @property
    def told(self) -> list[str]:
        """The emails' subjects."""
        return [told.subject for _, told in self.ports.notifier.announced]  # type: ignore[attr-defined]

    def _answers(self) -> dict[str, Any]:
        answers: dict[str, Any] = {
            "Open incident": {},
            "Decide next step": self._decide,
            "Isolate node": self._waits(isolate_node, self._gang_stops, self.policy),
            "Freeze evidence": self._waits(freeze_evidence, self._evidence_arrives, self.policy),
            "Wait for approval": self._waits(wait_for_approval, lambda request: self.on_question(request), LINKS),
            "Wait for condition": self._waits(wait_for_news, lambda _: self.on_wait()),
            "Return to service": self._answers_at_once(return_to_service, self.policy),
            "End incident": self._answers_at_once(end_incident, self.policy),
            "Page operators": {"MessageId": "m"},
            "Mark escalated": self._left_to_a_human,
            "Reboot node": self._waits(reboot_node, self._somebody_looks_and(self._boots)),
            "Run diagnostics": self._waits(run_diagnostics, self._diagnosed, self.policy),
            "Replace node": self._waits(replace_node, lambda request: self.on_replace(request), self.policy),
            "Stop gang": self._waits(stop_gang, self._gang_stops, self.policy),
            "Find checkpoint": self._waits(find_checkpoint, lambda _: self._node_looks(), self.policy),
            "Launch gang": self._waits(launch_gang, lambda _: self._gang_becomes("RUNNING"), self.policy),
        }
        return {**answers, **{state: error for state, error in self.breaks.items() if state in answers}}

    def _ingest(self, event: HealthEvent) -> None:
        self.heard["fault"] += 1
        ingest(event, self.ports, self.policy)

    def _wakes(self, take: Callable[[Any, "Ports"], None], told: Any) -> None:
        """Something is told to the function that wakes workflows, and decides what follows."""
        take(told, self._deciding)

    @property
    def _deciding(self) -> "Ports":
        return replace(self.ports, decide=self._decides_at_once)

    def _ports_of(self, service: Any) -> "Ports":
        """What the function of a step is given: that of some steps decides what follows."""
        return self._deciding if service in (isolate_node, freeze_evidence, run_diagnostics) else self.ports

    def _decides_at_once(self, request: DecideRequest) -> Decision | None:
        return decide_at_once(request, self.ports, self.policy)

    def _walk(self, stem: str, given: Json, answers: Json) -> Walk:
        done = walk(stem, given, answers)
        self.walked.append(done)
        return done

    def _gang_finishes(self) -> None:
        """The job runs to its end by itself."""
        self._gang_becomes("STOPPED", exit_code=0)

    def _left_to_a_human(self, arguments: Json) -> Json:
        incident = self.ports.incidents.history(self.incident_id).incident
        self.ports.incidents.finish(replace(incident, state=IncidentState.ESCALATED))
        return {}

    def _decide(self, arguments: Json) -> Json:
        request = DecideRequest.model_validate(arguments["Payload"])
        return decide_next_step(request, self.ports, self.policy).model_dump(mode="json")

    def _answers_at_once(self, service: Any, *more: Any) -> Callable[[Json], Json]:
        def answer(arguments: Json) -> Json:
            request = StepRequest.model_validate(arguments["Payload"])
            dumped: Json = service(request, self._deciding, *more).model_dump(mode="json")
            return dumped

        return answer

    def _waits(self, service: Any, react: Callable[[StepRequest], object], *more: Any) -> Callable[[Json], Any]:
        def wait(arguments: Json) -> Any:
            request = StepRequest.model_validate(arguments["Payload"])
            token = f"{request.task_token}-{next(self._tokens)}"  # each wait has its own, as in Step Functions
            request = request.model_copy(update={"task_token": token})
            service(request, self._ports_of(service), *more)
            react(request)
            resumed = self.ports.workflows.resumed.pop(token, None)  # type: ignore[attr-defined]
            if resumed is None:
                self.clock.advance(request.decision.deadline_seconds)
                return TIMEOUT
            return resumed.model_dump(mode="json")

        return wait

    # How the world reacts

    def _gang_stops(self, request: StepRequest) -> None:
        if scheduler_in(self.ports).stopped:  # nobody stops who was not asked to
            self._gang_becomes("STOPPED")

    def _gang_becomes(self, status: str, exit_code: int = 143) -> None:
        job = self.ports.jobs.get("llama")
        run = self.ports.jobs.get_run("llama", job.current_run) if job else None
        for task in run.tasks if run else ():
            if not (status == "STOPPED" and task.node_id in self.deaf):
                change = TaskChange("llama", run.number, task.task_id, task.placement, status, exit_code, "")  # type: ignore[union-attr]
                self.heard["task"] += 1
                self._wakes(wakeup.on_task_change, change)

    def _boots(self, request: StepRequest) -> None:
        if request.decision.action is Action.RESET_GPU:
            self._resets_gpu(request)
            return
        was_sent = any(verb == "reboot-node" for verb, _ in self.commands)
        if not self.node_returns or not was_sent:
            return
        self.clock.advance(60)
        if self.takes_diagnostics:
            take_diagnostics(self.ports)
        self._comes_up(request.decision.node_id, "boot-2")
        for event in self.after_reboot:
            self._ingest(replace_time(event, self.clock))

    def _resets_gpu(self, request: StepRequest) -> None:
        name, asked = request.decision.node_id, commands_in(self.ports).sent_of("reset-gpu")
        if self.resets is None or not asked:
            return
        self.clock.advance(20)
        fact = self._fact(name, self.node(name).boot_id)
        event = GpuResetFinished(
            **fact, request_id=asked[-1].request_id, outcome=self.resets, reason="as the node says"
        )
        self.heard["node"] += 1
        self._wakes(wakeup.on_answer, event)
        self.clock.advance(1)
        for event_after in self.after_reset:
            self._ingest(replace_time(event_after, self.clock))

    def _comes_up(self, name: str, boot_id: str) -> None:
        booted = NodeBooted(**self._fact(name, boot_id), booted_at=self.clock(), address="127.0.0.1", accelerators=8)
        self.heard["node"] += 1
        self._wakes(wakeup.on_node_booted, booted)

    def _diagnosed(self, request: StepRequest) -> None:
        name = request.decision.node_id
        if name in self.hangs:
            return
        verdict = self.diagnoses.get(name, Verdict.OK)
        fact = self._fact(name, self.node(name).boot_id)
        event = DiagnosticsFinished(
            **fact,
            request_id=named(DIAGNOSTICS, turn_of(request), self.ports),
            verdict=verdict,
            failed_tests=("memory",) if verdict is Verdict.FAILED else (),
            checks=(CheckResult(check=Check.dcgm, verdict=verdict),),
        )
        self.heard["node"] += 1
        self._wakes(wakeup.on_answer, event)

    def _evidence_arrives(self, request: StepRequest) -> None:
        name = request.decision.node_id
        if name in self.hangs:
            return
        fact = self._fact(name, self.node(name).boot_id)
        key = evidence_key(request.incident_id, request.operation_turn)
        request_id = named(EVIDENCE, request_id_of(request), self.ports)
        event = EvidenceFrozen(
            **fact,
            request_id=request_id,
            object_key=key,
            size_bytes=4_711,
            items=12,
            confirmation=self.confirms,
            confirmed_by=CONFIRMED_BY,
        )
        self.heard["node"] += 1
        self.heard["upload"] += 1
        self._wakes(wakeup.on_answer, event)

    def asked_to_look(self) -> tuple[str, dict[str, str]]:
        """The node that was asked last for a checkpoint, and what its answer has to name."""
        sent = searches_in(self.ports)
        return sent[-1].node_id, {"request_id": sent[-1].request_id, "directory": sent[-1].parameters["Directory"]}

    def _somebody_looks_and(self, react: Callable[[StepRequest], object]) -> Callable[[StepRequest], object]:
        """Whoever is asked for a checkpoint while a node is away answers first."""

        def reacts(request: StepRequest) -> None:
            if len(searches_in(self.ports)) > self._looked:
                self._node_looks()
            react(request)

        return reacts

    def _node_looks(self) -> None:
        """The node that was asked last says what it sees, but for one that hangs."""
        self._looked = len(searches_in(self.ports))
        name, asked = self.asked_to_look()
        if name in self.hangs:
            return
        limit = int(searches_in(self.ports)[-1].parameters.get("DistrustedStep", 10**18))
        trusted = [found for found in self.checkpoints if found[1] < limit or name in self.knows_no_distrust]
        newest = trusted[-1] if trusted and name not in self.blind else None
        event = CheckpointFound(
            **self._fact(name, self.node(name).boot_id),
            **asked,
            format=CheckpointFormat.megatron,
            path=newest[0] if newest else None,
            step=newest[1] if newest else None,
            last_step=self.shown_step,
            reason="the file system did not answer within 40 s" if name in self.blind else "",
        )
        self.heard["node"] += 1
        self._wakes(wakeup.on_answer, event)

    def _fact(self, name: str, boot_id: str) -> dict[str, Any]:
        shared = xid().model_dump(include=SHARED_FACTS)
        own = {"node_id": name, "instance_id": name, "boot_id": boot_id, "observed_at": self.clock()}
        return {**shared, **own, "event_id": f"{boot_id}-{name}-{len(self.commands)}"}


def replace_time(event: HealthEvent, clock: FrozenClock) -> HealthEvent:
    """The event as if it had been seen now."""
    return event.model_copy(update={"observed_at": clock()})


def without_job(cluster: FakeCluster) -> FakeCluster:
    """The same nodes with nothing on them."""
    for name in (BROKEN, PEER):
        cluster.ports.nodes.save(replace(cluster.node(name), job_id=None))
    return cluster


def crowd(count: int) -> list[HealthEvent]:
    """The same fault on other nodes of the pool."""
    return [xid(79, event_id=f"crowd-{n}", node_id=f"mi-crowd-{n}", instance_id=f"mi-crowd-{n}") for n in range(count)]
