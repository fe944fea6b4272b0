"""One pool's whole world: services and state machines as they are, on one agenda, over a cloud and a fleet."""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from nodeheal.adapters.memory.evidence import sign_upload
from nodeheal.adapters.memory.guests import MemoryGuests
from nodeheal.adapters.memory.owners import MemoryConfirmations
from nodeheal.adapters.memory.stores import MemoryAttemptLedger, MemoryPoolStore
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import IncidentState, JobState, Provider
from nodeheal.domain.approval import Links
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.silence import glimpse_of
from nodeheal.ports import Ports
from nodeheal.services import new_machine, stop_start, wakeup
from nodeheal.services.ingest import ingest
from nodeheal.services.notify import notify
from nodeheal.services.sweep import sweep
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.asl import Ask
from nodeheal.simulation.bus import QUEUE, Bus
from nodeheal.simulation.chance import Chance, lognormal
from nodeheal.simulation.cloud import SimCommands, SimMessenger, SimScheduler, SimWitnesses, SimWorkflows, Throttles
from nodeheal.simulation.executions import Executions, Running
from nodeheal.simulation.fleet import Fleet, TrueNode
from nodeheal.simulation.functions import Hands, serve, stem_of
from nodeheal.simulation.hazards import Died, Hazards, Seam
from nodeheal.simulation.invariants import Seen, Watch
from nodeheal.simulation.machines import SimMachines
from nodeheal.simulation.people import Operators
from nodeheal.simulation.setting import DAY, Setting
from nodeheal.simulation.stores import (
    SimHeartbeats,
    SimIncidents,
    SimJobNotes,
    SimJobs,
    SimNodes,
    SimWaits,
    SimWatchlist,
)
from nodeheal.simulation.trace import Trace
from nodeheal.simulation.work import Training

Json = Any
# Ports that are functions or values: nothing comes between.
_PLAIN = ("clock", "reading", "sign_upload", "find_checkpoint", "try_way", "has_confirmed")
SWEEP_SECONDS = 60.0
MASS_FAILURE_AT = 3_600.0
FUNCTION_TIMEOUT = 30.0
THROTTLED = "Lambda.TooManyRequestsException"


class World:
    """Begin it, run it, look at it."""

    def __init__(self, setting: Setting, read: Callable[[str], object] | None = None) -> None:
        self.setting, self.policy = setting, setting.rules
        self.agenda = Agenda()
        self.trace = Trace(self.agenda, read)
        self.chance = Chance(f"{setting.seed}/{setting.pool}")
        self.runs: Counter[str] = Counter()
        self.surprises: Counter[str] = Counter()
        self.throttles = Throttles(self.agenda, setting.quotas)
        self.executions = Executions(self.agenda, self.chance, self.trace)
        self.fleet = Fleet(setting, self.agenda, self.chance, self.trace)
        self.hazards = Hazards(self.chance.of("hazards"), setting.cloud, self._let_others_in)
        self.bus = Bus(self.agenda, self.chance, self.trace, setting.cloud, self.run)
        self._lag = self.chance.of("function lag")
        self._sweep_at: float | None = None
        self._began_at = 0.0  # the outermost function that runs now
        self._unheard: dict[str, HealthEvent] = {}  # sent, and not taken in yet
        self._make_ports()
        links = Links("https://approve.example/approval", b"simulated")
        self.hands = Hands(self.ports, self.policy, links)
        self.watch = Watch(Seen(self.agenda, self.raw, self.nodes, self.incidents, self.waits, self.policy), self.trace)
        self.people = Operators(
            setting.pool, setting.people, self.agenda, self.chance, self.trace, self.raw, self.fleet
        )
        self.work = Training(setting.pool, setting.work, self.agenda, self.chance, self.trace, self.raw, self.fleet)
        self._connect()
        self._begin()

    def _make_ports(self) -> None:
        self.nodes = SimNodes()
        self.incidents = SimIncidents(self.nodes)
        self.waits = SimWaits()
        self.jobs = SimJobs()
        self.scheduler = SimScheduler(self.throttles)
        self.commands = SimCommands(self.throttles, self.fleet)
        self.messenger = SimMessenger(self.agenda)
        self.machines = SimMachines(self.throttles, self.fleet, self.agenda, self.chance)
        self.raw = Ports(
            nodes=self.nodes,
            incidents=self.incidents,
            attempts=MemoryAttemptLedger(self.agenda.clock),
            pools=MemoryPoolStore(),
            waits=self.waits,
            jobs=self.jobs,
            job_notes=SimJobNotes(self.jobs),
            scheduler=self.scheduler,
            guests=MemoryGuests(),
            commands=self.commands,
            machines=self.machines,
            workflows=SimWorkflows(self.throttles, self.executions),
            messenger=self.messenger,
            watchlist=SimWatchlist(self.nodes, self.incidents),
            heartbeats=SimHeartbeats(self.fleet),
            witnesses=SimWitnesses(self.fleet, self.throttles),
            sign_upload=sign_upload,
            find_checkpoint=self.commands.find_checkpoint,
            try_way=self.commands.try_way,
            has_confirmed=MemoryConfirmations(),
            clock=self.agenda.clock,
        )
        found = {field.name: getattr(self.raw, field.name) for field in fields(Ports)}
        seams: dict[str, Any] = {}
        for name, port in found.items():
            seams[name] = port if name in _PLAIN else Seam(port, self.hazards)
        self.ports = Ports(**seams)

    def _connect(self) -> None:
        """Who tells whom."""
        self.executions.carry_out = self._carry_out
        self.bus.when_something_is_lost = self.want_sweep
        self.scheduler.on_act = self.commands.on_act = self.machines.on_act = self.watch.acted
        self.messenger.on_announce = lambda kind, told: self.bus.send("notify", told.key, lambda: self._notify(told))
        self.messenger.on_send = self.people.read
        self.people.out_of_service = lambda: list(self.watch.out_of_service)
        fleet, wake = self.fleet, self._wake
        fleet.on_event = self._report
        fleet.on_booted = lambda event: wake(event.node_id, lambda: wakeup.on_node_booted(event, self.ports))
        fleet.on_diagnosed = lambda event: wake(
            event.node_id, lambda: wakeup.on_diagnostics_finished(event, self.ports)
        )
        fleet.on_evidence = lambda event: wake(event.node_id, lambda: wakeup.on_evidence_frozen(event, self.ports))
        fleet.on_refused = self._refused
        fleet.on_silence = self._fell_silent
        self.machines.on_stopped = lambda name: wake(name, lambda: stop_start.on_machine_stopped(name, self.ports))
        self.machines.on_gone = lambda name: wake(name, lambda: new_machine.on_machine_gone(name, self.ports))
        self._connect_work()

    def _connect_work(self) -> None:
        work, wake = self.work, self._wake
        self.jobs.on_save = work.saved
        self.fleet.on_down, self.fleet.on_up, self.fleet.on_exit = work.node_down, work.node_up, work.exits
        self.scheduler.on_start, self.scheduler.on_stop = work.started, work.asked_to_stop
        self.commands.on_search = work.look
        work.on_task = lambda change: wake(change.task_id, lambda: wakeup.on_task_change(change, self.ports))
        work.on_found = lambda event: wake(event.node_id, lambda: wakeup.on_checkpoint_found(event, self.ports))
        work.on_doubled = lambda job, told: self.watch.break_promise("two_runs_never_write_at_once", job, told)
        self.people.restart_job, self.people.jobs_down = work.restart, work.down_for_good

    def _begin(self) -> None:
        records = self.fleet.populate()
        self.nodes.put(records)
        if self.setting.provider is Provider.ec2:
            self.machines.put(records)
        self.work.begin(self.setting.nodes)
        if self.setting.mass_failure:
            self.agenda.at(MASS_FAILURE_AT, lambda: self.fleet.fail_together(self.setting.mass_failure))
        self.want_sweep()
        self.agenda.after(DAY, self._sweep_daily)

    # Functions

    def run(self, function: str, act: Callable[[], object]) -> object:
        """One run of a function. Raises what it raises; NotAccepted where too many run at once."""
        self.throttles.take("functions", f"Invoke {function}")
        self.runs[function] += 1
        self._began_at = self.agenda.now if self.hazards.depth == 0 else self._began_at
        self.hazards.depth += 1
        try:
            return act()
        except (NotAccepted, Died):
            raise
        except Exception as error:
            self.surprises[f"{function}: {type(error).__name__}: {error}"[:200]] += 1
            raise
        finally:
            self.hazards.depth -= 1

    def _let_others_in(self) -> None:
        """No function outlives its timeout: the one that was begun first says how late it may become."""
        at = self.agenda.next_at()
        if at is not None and at <= self._began_at + FUNCTION_TIMEOUT - 1:
            self.agenda.step()

    def _carry_out(self, running: Running, ask: Ask) -> None:
        """What Step Functions does for a task, after the time that it takes to begin with it."""
        delay = lognormal(self._lag, 0.06, 0.5)
        match ask.resource.partition(":::")[2]:
            case "lambda:invoke" | "lambda:invoke.waitForTaskToken":
                self.agenda.after(delay, lambda: self._invoke(running, ask))
            case "states:startExecution.sync:2":
                self.agenda.after(delay, lambda: self.executions.start_child(running, ask))
            case "dynamodb:updateItem":
                self.agenda.after(delay, lambda: self._update(running, ask))
            case "sns:publish":
                self.agenda.after(delay, lambda: self._publish(running, ask))
            case other:
                raise ValueError(f"{ask.state} asks for {other}, which is not simulated")

    def _invoke(self, running: Running, ask: Ask) -> None:
        if running.ask is not ask or running.is_over:
            return
        stem = stem_of(ask.arguments["FunctionName"])
        try:
            answer = self.run(stem, lambda: serve(stem, ask.arguments["Payload"], self.hands))
        except Died:
            self.want_sweep()
            self.agenda.after(FUNCTION_TIMEOUT, lambda: self.executions.fail(running, ask, "Lambda.Unknown"))
        except Exception as error:
            name = THROTTLED if "Invoke" in str(error) else type(error).__name__
            self.want_sweep()
            self.executions.fail(running, ask, name, str(error))
        else:
            if not ask.resource.endswith("Token"):
                took = lognormal(self._lag, 0.15, 0.4)
                self.agenda.after(took, lambda: self.executions.answer(running, ask, answer))

    def _update(self, running: Running, ask: Ask) -> None:
        """The items that state machines write themselves."""
        key = ask.arguments["Key"]["pk"]["S"]
        kind, _, name = key.partition("#")
        state = ask.arguments["ExpressionAttributeValues"].get(":state", {}).get("S")
        if kind == "incident" and name in self.incidents.incidents:
            if state is not None:
                self.incidents.finish(replace(self.incidents.incidents[name], state=IncidentState(state)))
        elif kind == "job" and name in self.jobs.jobs:
            job = self.jobs.jobs[name]
            self.jobs.jobs[name] = replace(job, state=JobState(str(state)), version=job.version + 1)
        else:
            self.executions.fail(running, ask, "DynamoDB.ConditionalCheckFailedException")
            return
        self.executions.answer(running, ask, {})

    def _publish(self, running: Running, ask: Ask) -> None:
        given = running.execution.given
        self.people.page(running.name, given.get("node_id"), given.get("job_id"))
        self.executions.answer(running, ask, {"MessageId": "m"})

    # Events

    def _report(self, event: HealthEvent) -> None:
        self.trace.tell("reports", event.node_id, f"{event.family}/{event.code} on {event.boot_id}")
        self._unheard[event.event_id] = event
        self.bus.send("ingest", event.event_id, lambda: self._ingest(event), QUEUE)

    def _ingest(self, event: HealthEvent) -> None:
        became = ingest(event, self.ports, self.policy)
        self.trace.tell("ingested", event.event_id, became.value)
        self._unheard.pop(event.event_id, None)
        self.watch.ingested(event)

    def _wake(self, about: str, act: Callable[[], None]) -> None:
        self.bus.send("wakeup", about, act)

    def _refused(self, command_id: str) -> None:
        self.commands.refused(command_id)
        self._wake(command_id, lambda: wakeup.on_command_failed(command_id, self.ports))

    def _notify(self, notification: Notification) -> None:
        notify(notification, self.ports)

    # The sweep

    def want_sweep(self, after: float = 0.0) -> None:
        """Let the sweep find what there is to be found: at the next minute, or the one so much later.

        One that finds nothing changes nothing, so those are left out: tests/simulation holds that to be so.
        """
        at = (int((self.agenda.now + after) // SWEEP_SECONDS) + 1) * SWEEP_SECONDS
        if self._sweep_at is not None and self.agenda.now < self._sweep_at <= at:
            return
        self._sweep_at = at
        self.agenda.at(at, self._sweep)
        self.agenda.at(at + 2 * SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        try:
            self.run("sweep", lambda: sweep(self.ports, self.policy))
        except (Exception, Died):
            self.want_sweep()

    def _sweep_daily(self) -> None:
        self._sweep()
        self.agenda.after(DAY, self._sweep_daily)

    def _fell_silent(self, node: TrueNode, looks: int = 0) -> None:
        """Have it looked for when its silence is news, and again while it is."""

        def look() -> None:
            record = self.nodes.nodes.get(node.node_id)
            if node.is_up or node.is_gone or record is None or not glimpse_of(record).is_watched:
                return
            self.want_sweep()
            self._fell_silent(node, looks + 1)

        first = self.policy.silence.silent_seconds - SWEEP_SECONDS
        self.agenda.after(first if looks == 0 else SWEEP_SECONDS if looks < 30 else DAY, look)

    def finish(self, seconds: float) -> None:
        """No more faults: let what is under way end, for so long."""
        self.fleet.is_over = True
        self.agenda.run(self.agenda.now + seconds)
        self.work.finish()
        for event_id in self._unheard if not self.bus.in_flight else ():
            self.watch.break_promise("every_fault_is_accounted_for", event_id, "it was sent, and never taken in")

    def advance(self, until: float) -> None:
        """Let everything happen until then."""
        self.agenda.run(until)
