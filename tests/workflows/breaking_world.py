"""A cluster whose functions may die at any of their side effects, and a world that reacts to what was done, not to what
was meant: a node reboots because it was asked to, a rank stops because it was.

Who calls a function after it has broken does what AWS does: Step Functions as the state machine says, the queue and the
bus tell it again, the clock calls the sweep a minute later, and a human repeats his command.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.agent.commands.node_command import why_refuse
from nodeheal.agent.runtime.clock import Clock
from nodeheal.contract.health_event import DiagnosticsFinished, HealthEvent
from nodeheal.contract.steps import DecideRequest, Decision, StepRequest
from nodeheal.contract.vocabulary import Action, IncidentState, Provider, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.machine import Machine, Power
from nodeheal.domain.fleet.node import OUT_OF_SERVICE
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations import engine
from nodeheal.operations.engine import machine_stopped
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery.decide_next_step import decide_at_once, decide_next_step
from nodeheal.services.sweep import sweep
from nodeheal.simulation.hazards import AnswerLost, Died
from tests.support.builders import (
    ACT,
    DIAGNOSTICS,
    commands_in,
    named,
    scheduler_in,
    turn_of,
)
from tests.support.enrolment import retire
from tests.support.fake_cluster import FakeCluster
from tests.support.fuse import Fuse, fused
from tests.support.walker import TIMEOUT, Error, Walk
from tests.workflows.watched import AgendaClock, WatchedMemory

Json = dict[str, Any]
CALLED_AT_MOST = 3  # a function that is called asynchronously is called again twice
QUIET = {"silence": ACT.silence.model_copy(update={"enabled": False})}  # heartbeats have tests of their own
ACTS = ACT.model_copy(update=QUIET)


class BreakingWorld(FakeCluster):
    """A job on two nodes and a spare. What is wrong with what is done is noted at once, in `wrong`."""

    make_clock = AgendaClock

    def __init__(
        self,
        fuse: Fuse,
        policy: RecoveryPolicy = ACTS,
        *,
        spare: bool = True,
        machine: Machine | None = None,
        is_late: bool = False,
    ) -> None:
        self.fuse, self.is_late = fuse, is_late
        injected_failures, self.fuse.injected_failures = fuse.injected_failures, ()
        self.wrong: list[str] = []
        self.is_beyond_repair = False  # what is handed to a human
        self.meanwhile: dict[str, list[Callable[[], object]]] = {}  # by function: what happens right before it runs
        self._orders: list[tuple[str, str, float]] = []  # for a node: the boot to be ended, and until when
        self.answers: list[str] = []  # of commands, to the human who gave them
        self.paged: set[str] = set()  # by the state machine itself
        self._later: list[Callable[[], object]] = []  # what the world still has to say
        self._heard: list[tuple[Any, Any]] = []  # every event that was delivered, to be told again
        self._seen_orders = self._seen_sent = self._answered = 0
        self.rebooted: list[tuple[str, str]] = []  # (node, the boot that was ended by a command)
        self._ended_by_ec2: list[tuple[str, str]] = []  # (machine, the boot that it had when its reboot was asked for)
        self._gone: set[str] = set()  # tasks that are no more
        self._begun: list[str] = []  # incidents whose workflow was walked
        super().__init__(policy, spare=spare, make_ports=self._fused)
        self.fuse.made.clear()  # the job's own start is none of the story
        self.fuse.injected_failures, self.fuse.watch = injected_failures, self._watch
        if machine is not None:
            self._on_ec2(machine)
        self.on_replace = self._new_machine

    def _fused(self, clock: AgendaClock) -> Ports:
        self.memory = WatchedMemory(clock, self.policy)
        self.plain = self.memory.ports
        return fused(self.plain, self.fuse)

    def _on_ec2(self, machine: Machine) -> None:
        for name in list(self.plain.nodes.nodes):  # type: ignore[attr-defined]
            self.plain.nodes.save(replace(self.node(name), provider=Provider.ec2))
            self.plain.machines.machines[name] = replace(machine, machine_id=name)  # type: ignore[attr-defined]
        self.fault = {"provider": Provider.ec2}

    fault: Json = {}  # noqa: RUF012  # what is said of a node in its events, besides

    def _watch(self, call: str, given: tuple[Any, ...], named: Json) -> None:
        if call == "commands.reboot-node":
            self._orders.append((given[0].node_id, given[0].boot_id, given[2].timestamp()))
        if call == "machines.power" and given[1] is Power.REBOOT:
            self._asks_ec2(given[0])
        self.memory.called(call, given)

    def _asks_ec2(self, machine_id: str) -> None:
        """EC2 knows nothing of boots: whoever asks twice reboots twice."""
        ended = (machine_id, self.node(machine_id).boot_id)
        if ended in self._ended_by_ec2:
            self.wrong.append(f"EC2 was asked twice to reboot {machine_id} from {ended[1]}")
        self._ended_by_ec2.append(ended)

    # How functions are called

    def _runs(self, function: str, call: Callable[[], Any]) -> Any:
        """What it answers, or the error that Step Functions sees."""
        self._play_later()
        if self.meanwhile.get(function):
            self.meanwhile[function].pop(0)()
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
        except Exception as surprise:
            self.wrong.append(f"{function} raised {surprise!r}")
            return Error(type(surprise).__name__)
        finally:
            self.wrong += self.memory.wrong()

    def _is_told(self, function: str, call: Callable[[], Any]) -> None:
        """By a bus or a queue: told again where it breaks."""
        for _ in range(CALLED_AT_MOST):
            if not isinstance(self._runs(function, call), Error):
                return
        self._later.append(partial(self._runs, function, call))

    def _play_later(self) -> None:
        if self.fuse.function or self.is_late:
            return
        self._play_all_later()

    def _play_all_later(self) -> None:
        later, self._later = self._later, []
        for each in later:
            each()

    def _wakes(self, take: Callable[[Any, Ports], None], told: Any) -> None:
        self._heard.append((take, told))
        self._is_told(f"wakeup.{take.__name__}", lambda: take(told, self._deciding))

    def _decides_at_once(self, request: DecideRequest) -> Decision | None:
        """In the function that ends the wait. Its calls are those of the decision all the same."""
        if self.meanwhile.get("decide_next_step"):
            self.meanwhile["decide_next_step"].pop(0)()
        with self.fuse.working("decide_next_step"):
            return decide_at_once(request, self.ports, self.policy)

    def _ingest(self, event: HealthEvent) -> None:
        self._heard.append((None, event))
        self._is_told("ingest", lambda: ingest(event, self.ports, self.policy))

    def _answers_at_once(self, service: Any, *more: Any) -> Callable[[Json], Any]:
        def answer(arguments: Json) -> Any:
            request = StepRequest.model_validate(arguments["Payload"])
            answered = self._runs(service.__name__, lambda: service(request, self._deciding, *more))
            return answered if isinstance(answered, Error) else answered.model_dump(mode="json")

        return answer

    def _decide(self, arguments: Json) -> Any:
        request = DecideRequest.model_validate(arguments["Payload"])
        decided = self._runs("decide_next_step", lambda: decide_next_step(request, self.ports, self.policy))
        return decided if isinstance(decided, Error) else decided.model_dump(mode="json")

    def _waits(self, service: Any, react: Callable[[StepRequest], object], *more: Any) -> Callable[[Json], Any]:
        def wait(arguments: Json) -> Any:
            request = StepRequest.model_validate(arguments["Payload"])
            token = f"{request.task_token}-{next(self._tokens)}"
            request = request.model_copy(update={"task_token": token})
            broke = self._runs(service.__name__, lambda: service(request, self._ports_of(service), *more))
            if isinstance(broke, Error) and ":dies-" in broke.cause:
                self._later.append(partial(react, request))  # Step Functions hears of the crash before the world acts
            elif broke != Error("NotAccepted"):  # which is repeated before the world has noticed anything
                react(request)
            resumed = self.plain.workflows.resumed.pop(token, None)  # type: ignore[attr-defined]
            self.plain.workflows.expired.add(token)  # type: ignore[attr-defined]
            if resumed is not None:  # a token that was used ends the wait, whatever became of the function
                return resumed.model_dump(mode="json")
            if isinstance(broke, Error):
                return broke
            self.clock.advance(request.decision.deadline_seconds)
            return TIMEOUT

        return wait

    def _answers(self) -> Json:
        return {**super()._answers(), "Page operators": self._page}

    def _page(self, _: Json) -> Json:
        self.paged.add(self.incident_id)
        return {"MessageId": "m"}

    # How the world reacts

    def reports(self, event: HealthEvent) -> Walk:
        self._ingest(event)
        for more in self.before_walk:
            self._ingest(more)
        self.walk_what_was_started()
        return next(walk for walk in reversed(self.walked) if "Open incident" in walk.path)

    def walk_what_was_started(self) -> None:
        """The workflows that were started and have not run yet, each to its end."""
        while new := [i for i in self.plain.workflows.started if i not in self._begun]:  # type: ignore[attr-defined]
            before, self.incident_id = getattr(self, "incident_id", new[0]), new[0]
            self._begun.append(new[0])
            self._walk("recover_node", {"incident_id": new[0]}, self._answers())
            self._play_later()
            self.incident_id = before

    def _gang_becomes(self, status: str, exit_code: int = 143) -> None:
        """What was started runs; what runs ends."""
        tasks = dict(scheduler_in(self.plain).tasks)
        for task_id, task in tasks.items():
            number = int(task_id.split("-")[-2])
            if task_id in self._gone or (status == "STOPPED" and task.node_id in self.deaf):
                continue
            if status == "STOPPED":
                self._gone.add(task_id)
            self._wakes(
                wakeup.on_task_change, TaskChange("llama", number, task_id, task.placement, status, exit_code, "")
            )

    def _gang_stops(self, request: StepRequest) -> None:
        """Who was asked to stop does."""
        for task_id in list(scheduler_in(self.plain).stopped):
            task = scheduler_in(self.plain).tasks[task_id]
            if task_id not in self._gone and task.node_id not in self.deaf:
                self._stops(task_id)

    def _stops(self, task_id: str) -> None:
        task = scheduler_in(self.plain).tasks[task_id]
        self._gone.add(task_id)
        change = TaskChange("llama", int(task_id.split("-")[-2]), task_id, task.placement, "STOPPED", 143, "")
        self._wakes(wakeup.on_task_change, change)

    def _boots(self, request: StepRequest) -> None:
        """Carry out every reset and reboot that was asked for; a command for another boot is refused by its node."""
        name = request.decision.node_id
        if request.decision.action is Action.RESET_GPU:
            resets = [sent.boot_id for sent in commands_in(self.plain).sent_of("reset-gpu")]
            if resets and resets[-1] == self.node(name).boot_id:
                self._resets_gpu(request)
            return
        while self._seen_sent < len(self._orders):
            self._seen_sent += 1
            self.takes_order(*self._orders[self._seen_sent - 1])
        ordered = self.plain.machines.ordered  # type: ignore[attr-defined]
        while self._seen_orders < len(ordered):
            who, order = ordered[self._seen_orders]
            self._seen_orders += 1
            if order is Power.STOP:
                self._wakes(machine_stopped, name)
            elif self.node_returns:
                self._goes_down_and_comes_up(who)

    def takes_order(self, name: str, boot_id: str, expires_at: float) -> None:
        """What the agent makes of a command to reboot, by its own rule: it may come late, and it may come twice."""
        running, clock = self.node(name).boot_id, Clock(utc_now=self.clock)
        if self.node_returns and why_refuse([boot_id], expires_at, running, clock) is None:
            if (name, boot_id) in self.rebooted or running != boot_id:
                self.wrong.append(f"{name} was rebooted twice by what was sent for {boot_id}")
            self.rebooted.append((name, boot_id))
            self._goes_down_and_comes_up(name)

    def _goes_down_and_comes_up(self, name: str) -> None:
        self.clock.advance(60)
        boot_id = f"boot-{int(self.node(name).boot_id.rpartition('-')[2]) + 1}"
        self._gone |= {i for i, task in scheduler_in(self.plain).tasks.items() if task.node_id == name}
        self._comes_up(name, boot_id)
        for event in self.after_reboot:
            self._ingest(event.model_copy(update={"observed_at": self.clock(), "boot_id": boot_id}))

    def _new_machine(self, request: StepRequest) -> None:
        machines: Any = self.plain.machines
        for name in [name for name, _ in machines.given_back]:
            self._wakes(engine.machine_gone, name)
        for name in machines.tokens.values():
            if self.plain.nodes.get(name) is None:
                self.clock.advance(60)
                self._comes_up(name, "boot-1")

    def _diagnosed(self, request: StepRequest) -> None:
        """It answers what it was asked, and nothing else."""
        asked = [sent.node_id for sent in commands_in(self.plain).sent_of("run-diagnostics")]
        name = request.decision.node_id
        request_id = named(DIAGNOSTICS, turn_of(request), self.plain)
        if len(asked) <= self._answered or asked[-1] != name or name in self.hangs:
            return
        self._answered = len(asked)
        verdict = self.diagnoses.get(name, Verdict.OK)
        failed = ("memory",) if verdict is Verdict.FAILED else ()
        fact = self._fact(name, self.node(name).boot_id)
        event = DiagnosticsFinished(**fact, request_id=request_id, verdict=verdict, failed_tests=failed)
        self._wakes(wakeup.on_answer, event)

    def _fact(self, name: str, boot_id: str) -> Json:
        return {**super()._fact(name, boot_id), **self.fault}

    # What comes after

    def settle(self) -> None:
        """The minutes after: what was late comes, the sweep passes, all is told once more, people hear of it."""
        self._play_all_later()
        self.clock.advance(61)
        self._is_told("sweep", lambda: sweep(self.ports, self.policy))
        self.walk_what_was_started()
        self._play_all_later()
        for take, told in list(self._heard):  # a bus may deliver everything twice
            again = (
                (lambda t=told: ingest(t, self.ports, self.policy)) if take is None else partial(take, told, self.ports)
            )
            self._is_told("again", again)
        self.walk_what_was_started()
        for _, told in list(self.plain.notifier.announced):  # type: ignore[attr-defined]
            self._is_told("notify", partial(notify, told, self.ports, self.policy))

    def does(self, command: str, call: Callable[[], object]) -> None:
        """A human, who repeats the command where it breaks, and reads what it answers."""

        def command_line() -> None:
            try:
                call()
            except ValueError as answer:
                self.answers.append(str(answer))

        self._is_told(command, command_line)

    def see_to_it(self) -> None:
        """What a human does about what was handed to him."""
        incidents = self.plain.incidents.incidents  # type: ignore[attr-defined]
        for incident_id in list(incidents):
            node_id = incidents[incident_id].node_id
            if self.node(node_id).state in OUT_OF_SERVICE and self.node(node_id).open_incident == incident_id:
                self._gives_back(node_id)
            if incidents[incident_id].state is IncidentState.ESCALATED:
                self.does("close_incident", partial(close_incident, incident_id, "seen to", self.ports))
        self.walk_what_was_started()

    def _gives_back(self, node_id: str) -> None:
        if self.is_beyond_repair:
            self.does("retire_node", lambda: retire(node_id, "beyond repair", self.ports, MemoryMarks()))
        else:
            self.does("release_node", lambda: release_node(node_id, "repaired", self.ports))

    def faults(self) -> list[str]:
        """Everything that is wrong: while it went on, at rest, and when a human has seen to what was his."""
        self.settle()
        wrong = [*self.wrong, *self._at_rest()]
        self.see_to_it()
        return list(dict.fromkeys([*wrong, *(f"after a human: {why}" for why in self._not_as_before())]))

    def _not_as_before(self) -> list[str]:
        """What is not as it was: every node serves or is retired, and no incident is anybody's."""
        left = self.memory.wrong_at_rest()
        for node in self.plain.nodes.nodes.values():  # type: ignore[attr-defined]
            if node.state in OUT_OF_SERVICE or node.open_incident is not None:
                left.append(f"{node.node_id} is {node.state}, and names {node.open_incident}")
        for incident in self.plain.incidents.incidents.values():  # type: ignore[attr-defined]
            if incident.state is not IncidentState.CLOSED:
                left.append(f"{incident.incident_id} is {incident.state}")
        return left

    @property
    def ends(self) -> tuple[str, ...]:
        """How the recoveries ended, in order."""
        return tuple(walk.end for walk in self.walked if "Open incident" in walk.path)

    def told_of(self, what: str) -> list[str]:
        """The lines of progress of this kind that the incident's timeline has."""
        timeline = self.plain.incidents.history(self.incident_id).timeline
        return [entry.text for entry in timeline if entry.entry_id.startswith(f"{what}-")]

    def _at_rest(self) -> list[str]:
        told = self.memory.wrong_at_rest()
        told_of = self.paged | {note.key.partition("/")[0] for note in self.plain.notifier.sent}  # type: ignore[attr-defined]
        for incident in self.plain.incidents.incidents.values():  # type: ignore[attr-defined]
            if incident.state is IncidentState.ESCALATED and incident.incident_id not in told_of:
                told.append(f"no human was told of {incident.incident_id}, which is handed to one")
        return told


@dataclass(frozen=True)
class Story:
    """A story that is told with every break in it. `ends`: how its workflows end where nothing
    breaks. `only`: which functions are broken; what the others do, another story has."""

    name: str
    make: Callable[[Fuse], BreakingWorld]
    tell: Callable[[BreakingWorld], object]
    ends: tuple[str, ...] = ("Recovered",)
    only: tuple[str, ...] = ()  # of these functions; empty: of all

    def __str__(self) -> str:
        return self.name
