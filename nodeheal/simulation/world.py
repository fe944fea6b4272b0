"""The world of one pool: the real services and state machines, on one agenda, over a simulated cloud and fleet."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.contract.acts import Actor, Reconcile
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.errors import NotAccepted, Superseded
from nodeheal.domain.fleet.unmanaged_tasks import tasks_not_restarted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Links
from nodeheal.operations.engine import machine_gone, machine_stopped
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.operators.reconcile_records import reconcile_records
from nodeheal.services.records_epoch import refuse_if_gone_back
from nodeheal.services.sweep import sweep
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.bus import QUEUE, Bus, FunctionThrottled
from nodeheal.simulation.chance import Chance
from nodeheal.simulation.cloud import Throttles
from nodeheal.simulation.co_tenants import CoTenants
from nodeheal.simulation.executions import Executions
from nodeheal.simulation.fleet import Fleet
from nodeheal.simulation.functions import ServiceContext
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.hazards import Died, Hazards
from nodeheal.simulation.kubernetes import KubernetesCluster
from nodeheal.simulation.operators import Operators
from nodeheal.simulation.outages import AwsService, Outages
from nodeheal.simulation.restores import Copy
from nodeheal.simulation.seen import Seen
from nodeheal.simulation.setting import Setting
from nodeheal.simulation.slurm import SimSlurm
from nodeheal.simulation.sweeper import Sweeper
from nodeheal.simulation.switches import Switches
from nodeheal.simulation.tasks import FUNCTION_TIMEOUT, INVOKE, Tasks
from nodeheal.simulation.trace import Trace
from nodeheal.simulation.watch import Watch
from nodeheal.simulation.work import Training
from nodeheal.simulation.world_ports import with_fault_injection, world_ports

Json = Any
MASS_FAILURE_AT = 3_600.0
# They act on no record: the sweep finds that records went back, and notify pages.
_ACT_IN_ANY_CASE = ("sweep", "notify")
LAST_SECONDS = 1_800.0


class SimulatedPool:
    """Create it, run it, read its results."""

    def __init__(self, setting: Setting, read: Callable[[str], object] | None = None) -> None:
        self.setting, self.policy = setting, setting.rules
        self.agenda = Agenda()
        self.trace = Trace(self.agenda, read)
        self.chance = Chance(f"{setting.seed}/{setting.pool}")
        self.runs: Counter[str] = Counter()
        self.surprises: Counter[str] = Counter()
        self.throttles = Throttles(self.agenda, setting.quotas)
        self.executions = Executions(self.agenda, self.chance, self.trace, setting.is_strict)
        self.fleet = Fleet(setting, self.agenda, self.chance, self.trace)
        self.outages = Outages(self.agenda, setting.outages)
        self.hazards = Hazards(
            self.chance.of("hazards"),
            setting.cloud,
            self._let_others_in,
            setting.injected_failures,
            self.outages.refuse,
        )
        self.bus = Bus(self.agenda, self.chance, self.trace, setting.cloud, self.run, self.outages)
        self._began_at = 0.0  # the outermost running function
        self._unheard: dict[str, HealthEvent] = {}  # sent, and not processed yet
        self.parts = world_ports(
            setting, self.agenda, self.chance, self.trace, self.throttles, self.fleet, self.executions
        )
        self.raw, self.nodes, self.incidents = self.parts.raw, self.parts.nodes, self.parts.incidents
        self.jobs, self.scheduler = self.parts.jobs, self.parts.scheduler
        self.commands, self.machines = self.parts.commands, self.parts.machines
        self.ports = with_fault_injection(self.raw, self.hazards)
        links = Links("https://approve.example/approval", b"simulated")
        self.hands = ServiceContext(self.ports, self.policy, links)
        down = sum(outage.seconds for outage in setting.outages)
        down += sum(restore.at - restore.back_to for restore in setting.restores)
        self.watch = Watch(
            Seen(self.agenda, self.raw, self.nodes, self.incidents, self.parts.operations, self.policy, down),
            self.trace,
        )
        self.operators = Operators(
            setting.pool, setting.operators, self.agenda, self.chance, self.trace, self.raw, self.fleet
        )
        self.co_tenants = CoTenants(setting, self.agenda, self.chance, self.trace, self.raw, self.fleet, self.operators)
        self.switches = Switches(setting, self.agenda, self.chance, self.trace, self.fleet)
        self.work = Training(setting.pool, setting.work, self.agenda, self.chance, self.trace, self.raw, self.fleet)
        self.sweeper = Sweeper(self.agenda, self.nodes, self.jobs, self.policy.silence.silent_seconds, self._sweep)
        self.tasks = Tasks(
            self.agenda,
            self.chance,
            self.executions,
            self.hands,
            self.run,
            self.outages,
            self.incidents,
            self.jobs,
            self.operators,
        )
        self._connect()
        self._begin()

    def _connect(self) -> None:
        """Connect the parts by their callbacks."""
        self.executions.carry_out = self.tasks.carry_out
        self.tasks.waited = lambda: self.throttles.waited
        self.tasks.when_one_fails = self.bus.when_something_is_lost = self.sweeper.want
        self.scheduler.on_act = self.commands.on_act = self.machines.on_act = self.watch.acted
        self.parts.notifier.on_announce = lambda kind, notification: self.bus.send(
            "notify", notification.key, lambda: self._notify(notification), QUEUE
        )
        self.parts.notifier.on_send = self.operators.read
        self.parts.pools.on_release = self.watch.slot_released
        self.operators.out_of_service = lambda: list(self.watch.out_of_service)
        fleet, wake = self.fleet, self._wake
        fleet.on_event = self._report
        fleet.on_booted = lambda event: wake(event.node_id, lambda: wakeup.on_node_booted(event, self.hands.deciding))
        fleet.on_diagnosed = lambda event: wake(event.node_id, lambda: wakeup.on_answer(event, self.hands.deciding))
        fleet.on_reset = lambda event: wake(event.node_id, lambda: wakeup.on_answer(event, self.hands.deciding))
        fleet.on_evidence = lambda event: wake(event.node_id, lambda: wakeup.on_answer(event, self.hands.deciding))
        fleet.on_refused = self._refused
        fleet.on_silence = self.sweeper.fell_silent
        self.machines.on_stopped = lambda name: wake(name, lambda: machine_stopped(name, self.hands.deciding))
        self.machines.on_gone = lambda name: wake(name, lambda: machine_gone(name, self.hands.deciding))
        self._connect_work()
        self._connect_neighbours()
        self._connect_cluster()

    def _connect_neighbours(self) -> None:
        self.watch.state.missing_unmanaged_tasks = self.scheduler.missing
        self.watch.state.unmanaged_tasks_on = self.scheduler.tasks_of_others_on
        self.watch.state.drained, self.watch.state.broken_off = self.co_tenants.drained, self.operators.broken_off
        self.scheduler.on_switched_on = self.watch.switched_on
        self.scheduler.on_stop_unmanaged = self.watch.unmanaged_task_stopped
        self.co_tenants.in_force = self._come_into_force

    def _connect_cluster(self) -> None:
        cluster, watch = self.parts.cluster, self.watch
        if cluster is None:
            return
        watch.state.cluster = cluster
        cluster.on_requeued = watch.job_requeued
        self.commands.on_diagnose = watch.diagnosed
        self.fleet.on_exit = cluster.exits
        if isinstance(cluster, KubernetesCluster):
            cluster.cordoned = self.co_tenants.drained
            cluster.on_resumed, cluster.on_evicted = watch.gang_resumed, watch.pod_evicted
            self.operators.on_over = self._resume_what_is_left
        if isinstance(self.scheduler, SimSlurm):
            self.scheduler.on_hand_over = self.machines.remake

    def _resume_what_is_left(self, incident_id: str) -> None:
        """Have people resume, sooner or later, what the end of an incident says that it has left suspended."""
        cluster = self.parts.cluster
        if incident_id not in self.incidents.incidents or not isinstance(cluster, KubernetesCluster):
            return
        for task in tasks_not_restarted(self.incidents.history(incident_id).timeline):
            cluster.resume_later(task.task_id)

    def _come_into_force(self, policy: RecoveryPolicy) -> None:
        """Activate a policy: services get this one from now on."""
        self.policy = self.watch.state.policy = policy
        self.watch.state.in_force_since = self.agenda.now
        self.hands = self.tasks.hands = replace(self.hands, policy=policy)

    def _connect_work(self) -> None:
        work, wake = self.work, self._wake
        self.jobs.on_save = work.saved
        self.fleet.on_down, self.fleet.on_up, self.fleet.on_exit = self._went_down, self._came_up, work.exits
        self.scheduler.on_launch = self.watch.rank_started
        self.scheduler.on_start, self.scheduler.on_stop = work.started, self._asked_to_stop
        self.commands.on_search, self.commands.on_look = work.look, work.see
        self.scheduler.on_see = work.described.see
        self.scheduler.on_live = work.alive
        work.on_task = self._task_changes
        work.on_found = lambda event: wake(event.node_id, lambda: wakeup.on_answer(event, self.hands.deciding))
        work.on_doubled = lambda job, text: self.watch.break_promise("two_runs_never_write_at_once", job, text)
        work.on_shared = lambda node, text: self.watch.break_promise("one_rank_a_node", node, text)
        self.operators.restart_job, self.operators.jobs_down = work.restart, work.down_for_good
        self.operators.reconcile = self._reconcile

    def _asked_to_stop(self, task_id: str, reason: str) -> None:
        self.watch.rank_asked_to_stop(reason)
        self.work.asked_to_stop(task_id, reason)

    def _task_changes(self, change: TaskChange) -> None:
        self._wake(change.task_id, lambda: wakeup.on_task_change(change, self.hands.deciding))
        self.sweeper.rank_changed(change)

    def _went_down(self, node: GroundTruth) -> None:
        self.work.node_down(node)
        self.scheduler.node_down(node)

    def _came_up(self, node: GroundTruth) -> None:
        self.work.node_up(node)
        if self.parts.cluster is not None:
            self.parts.cluster.node_up(node)
        self.sweeper.came_up(node)

    def _begin(self) -> None:
        records = self.fleet.populate()
        self.nodes.put(records)
        if self.setting.provider is Provider.ec2:
            self.machines.put(records)
        self.co_tenants.begin(records, self.scheduler, self.machines)
        self.switches.begin()
        if self.parts.cluster is not None:
            self.parts.cluster.begin()
        self.work.begin(self.setting.nodes)
        for restore in self.setting.restores:
            copy = Copy()
            self.agenda.at(restore.back_to, lambda copy=copy: copy.take(self.raw))  # type: ignore[misc]
            self.agenda.at(restore.at, lambda copy=copy: self._restore(copy))  # type: ignore[misc]
        if self.setting.restores:
            self.sweeper.run_every_minute()
        if self.setting.mass_failure:
            self.agenda.at(MASS_FAILURE_AT, lambda: self.fleet.fail_together(self.setting.mass_failure))

    def _restore(self, copy: Copy) -> None:
        self.trace.tell("restores", self.setting.pool)
        copy.put_back(self.raw)
        self.parts.index.forget()
        self.scheduler.series = f"-after-{self.agenda.now:.0f}"
        self.watch.restored()

    def _reconcile(self) -> bool:
        act = Reconcile(why="the table was restored", is_to_apply=True)
        answer = reconcile_records(act, Actor(id="ada", name="ada"), self.raw, self.policy)
        for correction in answer.corrections:
            self.trace.tell("corrects", correction.about, correction.text)
            self.work.doubt(correction.about)
        for node_id in self.fleet.nodes.keys() - self.nodes.nodes.keys():
            self.scheduler.draining.discard(node_id)  # as the command tells people to: the node is new since then
        return answer.is_over

    # Functions

    def run(self, function: str, act: Callable[[], object]) -> object:
        """Run a function once. Raises what it raises; FunctionThrottled where too many run at once."""
        if self.outages.seconds_left(AwsService.functions):
            raise FunctionThrottled(f"{INVOKE} {function}: {AwsService.functions} is down")
        try:
            self.throttles.take("functions", f"{INVOKE} {function}")
        except NotAccepted as error:
            raise FunctionThrottled(str(error)) from None
        self.runs[function] += 1
        self.trace.tell("runs", function)
        if self.hazards.depth == 0:
            self._began_at = self.watch.state.runs_since = self.agenda.now
            self.throttles.function_runs(True)
        self.hazards.depth += 1
        try:
            if function not in _ACT_IN_ANY_CASE:
                refuse_if_gone_back(self.raw)
            return act()
        except Superseded:  # it ends the workflow of an older submission, as intended
            raise
        except (NotAccepted, Died):
            self.watch.state.struck_at.append(self.agenda.now)
            raise
        except Exception as error:
            self.watch.state.struck_at.append(self.agenda.now)
            self.surprises[f"{function}: {type(error).__name__}: {error}"[:200]] += 1
            raise
        finally:
            self.hazards.depth -= 1
            if self.hazards.depth == 0:
                self.throttles.function_runs(False)

    def _let_others_in(self) -> bool:
        """Run other events. No function outlives its timeout: the earliest started one limits the time."""
        at = self.agenda.next_at()
        if at is None or at > self._began_at + FUNCTION_TIMEOUT - 1:
            return False
        self.agenda.step()
        return True

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

    def _refused(self, node_id: str, command_id: str) -> None:
        self.commands.refused(command_id)
        self._wake(command_id, lambda: wakeup.on_command_failed(node_id, command_id, self.hands.deciding))

    def _notify(self, notification: Notification) -> None:
        notify(notification, self.ports, self.policy)

    def _sweep(self) -> None:
        self.run("sweep", lambda: sweep(self.ports, self.policy))

    def finish(self, seconds: float) -> None:
        """Let running work end, without new faults, for this long. In its last part no job is started again: the sweep
        cleans up after a failed workflow minutes later.
        """
        self.fleet.is_over = True
        end = self.agenda.now + seconds
        self.agenda.run(max(self.agenda.now, end - LAST_SECONDS))
        self.operators.restart_job = lambda job_id: None
        self.agenda.run(end)
        self.work.finish()
        self.watch.jobs_ended(self.work.ranks_left())
        for event_id in self._unheard if not self.bus.in_flight else ():
            self.watch.break_promise("every_fault_is_accounted_for", event_id, "it was sent, and never taken in")

    def advance(self, until: float) -> None:
        """Run everything until then."""
        self.agenda.run(until)
