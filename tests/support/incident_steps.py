"""An incident and the steps of its recovery, over the ports in memory."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nodeheal.contract.health_event import DiagnosticsFinished, EvidenceFrozen, HealthEvent, NodeBooted
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.contract.vocabulary import Confirmation, IncidentState, Verdict
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.steps import launch_gang, stop_gang
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.return_to_service import return_to_service
from nodeheal.services.steps import save_node
from tests.support.builders import (
    ACT,
    DIAGNOSTICS,
    EVIDENCE,
    SHARED_FACTS,
    FrozenClock,
    memory_ports,
    named,
    node,
    started_job,
    stored_node,
    stored_run,
    xid,
)
from tests.support.jobs import ecs_job
from tests.support.step_functions import freeze_evidence, isolate_node, reboot_node, replace_node, run_diagnostics

if TYPE_CHECKING:
    from nodeheal.ports import Ports

A, B, C = "mi-0a1b2c3d4e5f60718", "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"


LLAMA = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, submission=1)


class Incident:
    """A running job on nodes A and B, a spare C, and an incident on A, driven step by step as the workflow does."""

    def __init__(self, code: int = 79, spare: bool = True, policy: RecoveryPolicy = ACT) -> None:
        self.policy = policy
        self.clock = FrozenClock()
        self.ports: Ports = memory_ports(self.clock)
        for name in (A, B, C)[: 3 if spare else 2]:
            self.ports.nodes.save(node(name))
        started_job(LLAMA, [self.node(A), self.node(B)], self.ports)
        for rank in (0, 1):
            self.task_is("RUNNING", rank)
        ingest(xid(code), self.ports, policy)
        self.id = incident_id_of(xid(code))
        self.turn = 0
        self.last: StepResult | None = None

    def node(self, name: str = A) -> Node:
        return stored_node(self.ports, name)

    def request(self, **changes: Any) -> StepRequest:
        """What the workflow asks for next, as Decide says it."""
        decision = decide_next_step(
            DecideRequest(incident_id=self.id, turn=self.turn, result=self.last), self.ports, self.policy
        )
        self.turn += 1
        self.last = None
        made = StepRequest(incident_id=self.id, turn=self.turn, decision=decision, task_token=f"token-{self.turn}")
        if decision.accused is not None and not self.policy.evidence.enabled:
            self._confirms(made)
            return self.request(**changes)
        return made.model_copy(update=changes)

    def _confirms(self, asked: StepRequest) -> None:
        """The node is asked about its fault, and confirms it."""
        freeze_evidence(asked, self.ports, self.policy)
        request_id = named(EVIDENCE, f"{self.id}-{self.turn}", self.ports)
        fact = self._fact(self.node().boot_id, A)
        event = EvidenceFrozen(**fact, request_id=request_id, confirmation=Confirmation.CONFIRMED)
        wakeup.on_answer(event, self.ports)
        self.resumed()

    def resumed(self) -> StepResult:
        """What the waiting state was resumed with."""
        self.last = self.ports.workflows.resumed[f"token-{self.turn}"]  # type: ignore[attr-defined]
        return self.last

    def is_waiting(self) -> bool:
        return f"token-{self.turn}" not in self.ports.workflows.resumed  # type: ignore[attr-defined]

    def task_is(self, status: str, rank: int, run: int = 1, exit_code: int | None = None) -> None:
        found = stored_run(self.ports, "llama", run)
        task = found.tasks[rank]
        change = TaskChange("llama", run, task.task_id, task.placement, status, exit_code, "")
        wakeup.on_task_change(change, self.ports)

    def boots(self, boot_id: str, name: str = A) -> None:
        self.clock.advance(60)
        event = NodeBooted(**self._fact(boot_id, name), booted_at=self.clock(), address="127.0.0.1", accelerators=8)
        wakeup.on_node_booted(event, self.ports)

    def diagnosed(self, verdict: Verdict, boot_id: str, name: str = A, failed: tuple[str, ...] = ()) -> None:
        request_id = named(DIAGNOSTICS, f"{self.id}-{self.turn}", self.ports)
        event = DiagnosticsFinished(
            **self._fact(boot_id, name), request_id=request_id, verdict=verdict, failed_tests=failed
        )
        wakeup.on_answer(event, self.ports)

    def _fact(self, boot_id: str, name: str) -> dict[str, Any]:
        shared = xid().model_dump(include=SHARED_FACTS)
        own = {"node_id": name, "instance_id": name, "boot_id": boot_id, "observed_at": self.clock()}
        return {**shared, **own, "event_id": f"e-{boot_id}-{name}"}

    # Whole steps, as they go when all is well

    def isolate(self) -> StepResult:
        isolate_node(self.request(), self.ports, ACT)
        for rank in (0, 1):
            self.task_is("STOPPED", rank, exit_code=143)
        return self.resumed()

    def reboot(self, boot_id: str = "boot-2") -> StepResult:
        request = self.request()
        reboot_node(request, self.ports)
        self.boots(boot_id)
        return self.resumed()

    def diagnose(self, verdict: Verdict = Verdict.OK, boot_id: str = "boot-2", name: str = A) -> StepResult:
        run_diagnostics(self.request(), self.ports, ACT)
        self.diagnosed(verdict, boot_id, name)
        return self.resumed()

    def swap(self) -> StepResult:
        request = self.request()
        replace_node(request, self.ports, ACT)
        return self.resumed()

    def give_back(self) -> StepResult:
        self.last = return_to_service(self.request(), self.ports, ACT)
        return self.last

    def relaunch(self) -> StepResult:
        launch_gang(self.request(), self.ports, ACT)
        for rank in (0, 1):
            self.task_is("RUNNING", rank, run=2)
        return self.resumed()


def take(it: Incident, event: HealthEvent) -> Ingested:
    return ingest(event, it.ports, ACT)


def healed(code: int = 79) -> Incident:
    it = Incident(code)
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    return it


def restarted_for_an_application_fault() -> Incident:
    it = Incident(31)
    request = it.request()
    stop_gang(request, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    it.clock.advance(1)
    launch_gang(request.model_copy(update={"task_token": "launch"}), it.ports, ACT)
    for rank in (0, 1):
        it.task_is("RUNNING", rank, run=2)
    it.last = it.ports.workflows.resumed["launch"]  # type: ignore[attr-defined]
    return it


def claimed_by(state: IncidentState) -> Incident:
    """The broken node is isolated and a spare is claimed; the incident is in this state."""
    it = Incident(code=74)
    it.isolate()
    save_node(it.ports, it.node(C), open_incident=it.id)
    it.ports.incidents.finish(replace(it.ports.incidents.history(it.id).incident, state=state))
    return it
