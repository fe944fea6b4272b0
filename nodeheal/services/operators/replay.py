"""Past events through a policy: what would have been decided, done and refused.

The real services decide, over whatever ports they are handed. Each step is taken to work, and to last as long as
`Pace` says: a replay cannot know what a reboot would have repaired.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import EvidenceSaved, Isolated, Refused, StepResult
from nodeheal.contract.steps import DecideRequest, Decision, StepRequest
from nodeheal.contract.vocabulary import Confirmation, NodeState, Outcome, Refusal, Step
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.verbs import VERBS
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.upsert_node import node_from_report
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.pool_size import slots_of
from nodeheal.services.recovery.queue import wake_queue
from nodeheal.services.recovery.reserve_attempt import reserve_or_why_not
from nodeheal.services.recovery.wait_for_news import bring_news, wait_for_news, waiting_for_news
from nodeheal.services.saving import node_of
from nodeheal.services.steps import save_node


@dataclass(frozen=True)
class Past:
    """One event as it came, and the job that ran on its node then, where that is known."""

    event: HealthEvent
    job_id: str | None = None


@dataclass(frozen=True)
class Pace:
    """How long a node is taken to be out of service for each step. Seconds."""

    react_seconds: int = 10  # a step knows what came within this time: nothing destructive is quicker
    repair_seconds: int = 900  # from the isolation to the return
    human_seconds: int = 8 * 3_600  # until somebody gives back a node that was left to a human


@dataclass(frozen=True)
class Decided:
    """One decision of the replay."""

    at: datetime
    incident_id: str
    node_id: str
    fault: str
    step: str
    reason: str
    outcome: str = ""


@dataclass(frozen=True)
class Waiting:
    """An incident that waits for news."""

    turn: int
    until: datetime


@dataclass
class Replayed:
    """What came of it all."""

    decisions: list[Decided] = field(default_factory=list)
    ingested: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    nodes_touched: set[str] = field(default_factory=set)
    budget_refused: list[Decided] = field(default_factory=list)
    attempts_refused: list[Decided] = field(default_factory=list)
    still_waiting: dict[str, Waiting] = field(default_factory=dict)  # by incident: the record ends before the news


def in_order(past: Sequence[Past]) -> list[Past]:
    """As the nodes saw it, whatever order it was kept in."""
    return sorted(past, key=lambda report: (report.event.observed_at, report.event.event_id, report.event.node_id))


class ReplayClock:
    """The replay's own time: that of the event that it is at."""

    def __init__(self) -> None:
        self.now = datetime.min

    def __call__(self) -> datetime:
        return self.now


class Replay:
    """Replays events in the order in which they were observed."""

    def __init__(self, policy: RecoveryPolicy, ports: Ports, clock: ReplayClock, pace: Pace | None = None) -> None:
        """`ports`: a world in memory that tells the time by `clock`."""
        self._policy, self._ports, self._clock = policy, ports, clock
        self._pace = pace or Pace()
        self._opened: list[tuple[datetime, str]] = []  # incidents whose first step is still to come
        self._back: dict[str, datetime] = {}  # when which node would have been in service again
        self.result = Replayed()

    def take(self, past: Past) -> None:
        """The next event, in order of time."""
        event = past.event
        self._act_on_what_was_opened_before(event.observed_at - timedelta(seconds=self._pace.react_seconds))
        self._end_waits(event.observed_at)
        self._come_to(event.observed_at)
        self._place_job(past)
        became = ingest(event, self._ports, self._policy)
        self.result.ingested[became.value] += 1
        opened = node_of(event.node_id, self._ports).open_incident
        if became is Ingested.OPENED and opened is not None:
            self._opened.append((event.observed_at, opened))
        self._go_on_with_what_was_resumed()

    def finish(self) -> Replayed:
        """Nothing more comes: act on what was opened last, and on what stands in line. What came of it all."""
        self._act_on_what_was_opened_before(datetime.max.replace(tzinfo=UTC))
        while self._back:
            self._come_to(max(self._clock(), min(self._back.values())))
            self._go_on_with_what_was_resumed()
        return self.result

    def _act_on_what_was_opened_before(self, moment: datetime) -> None:
        while self._opened and self._opened[0][0] < moment:
            at, incident_id = self._opened.pop(0)
            self._come_to(at)
            self._walk(incident_id, 0, None)

    def _go_on_with_what_was_resumed(self) -> None:
        """The waits that the event ended, as `ingest` saw it."""
        waiting = self.result.still_waiting
        for incident_id in [known for known in waiting if waiting_for_news(known, self._ports) is None]:
            over = waiting.pop(incident_id)
            self._walk(incident_id, over.turn, self._waited(incident_id, Outcome.DONE, "there is news"))

    def _end_waits(self, until: datetime) -> None:
        """The waits that no news ended by then, each at its deadline."""
        waiting = self.result.still_waiting
        while waiting:
            first = min(waiting, key=lambda incident_id: (waiting[incident_id].until, incident_id))
            if waiting[first].until > until:
                return
            over = waiting.pop(first)
            self._come_to(over.until)
            self._walk(first, over.turn, self._waited(first, Outcome.TIMED_OUT, "no news within the deadline"))

    def _come_to(self, now: datetime) -> None:
        self._clock.now = now
        self._return_nodes()

    def _place_job(self, past: Past) -> None:
        """The record says which job ran there; the one before, if any, has ended."""
        event, node = past.event, self._ports.nodes.get(past.event.node_id)
        if past.job_id is not None and self._ports.jobs.get(past.job_id) is None:
            self._ports.jobs.save(
                Job(past.job_id, event.pool, Cluster(event.scheduler, event.cluster), "", "", 1, current_run=1)
            )
            task = GangTask(event.node_id, 0, event.boot_id, "", status="RUNNING")
            self._ports.jobs.save_run(Run(past.job_id, 1, event.observed_at, "replayed", (task,)))
        if node is None:
            self._ports.nodes.save(replace(node_from_report(event, event.observed_at), job_id=past.job_id))
        elif past.job_id is not None and node.job_id != past.job_id:
            self._end_job(node.job_id)
            save_node(self._ports, node, job_id=past.job_id)

    def _end_job(self, job_id: str | None) -> None:
        run = self._ports.jobs.get_run(job_id, 1) if job_id else None
        if run is not None:
            self._ports.jobs.save_run(run.with_task(replace(run.tasks[0], status="STOPPED", exit_code=0)))
            for incident_id in [*self.result.still_waiting]:
                history = self._ports.incidents.history(incident_id)
                if history.incident.job_id == job_id:
                    bring_news(incident_id, self._ports)

    def _walk(self, incident_id: str, turn: int, result: StepResult | None) -> None:
        while True:
            request = DecideRequest(incident_id=incident_id, turn=turn, result=result)
            decision = decide_next_step(request, self._ports, self._policy)
            turn += 1
            asked = StepRequest(incident_id=incident_id, turn=turn, decision=decision)
            if decision.step is Step.WAIT:
                self._note(asked, "waiting")
                until = self._clock() + timedelta(seconds=decision.deadline_seconds)
                self.result.still_waiting[incident_id] = Waiting(turn, until)
                wait_for_news(asked.model_copy(update={"task_token": f"{incident_id}/{turn}"}), self._ports)
                return
            result = self._carry_out(asked)
            self._note(asked, result.outcome.value)
            if decision.ending is not None:
                self.result.endings[decision.ending.value] += 1
                self._leave_to_a_human(decision.node_id)
                return

    def _carry_out(self, asked: StepRequest) -> StepResult:
        decision = asked.decision
        if decision.ending is not None:
            return end_incident(asked, self._ports, self._policy)
        if decision.reserve:
            spent = reserve_or_why_not(asked, self._ports)
            if spent:
                self.result.attempts_refused.append(self._decided(asked, spent))
                return self._result(decision, Outcome.REFUSED, spent)
        if decision.step is Step.ISOLATE and not self._isolate(decision, asked):
            refused = self._result(decision, Outcome.REFUSED, "the disruption budget would have been full")
            return refused.model_copy(update={"facts": Refused(code=Refusal.BUDGET_FULL)})
        return self._worked(decision)

    def _isolate(self, decision: Decision, asked: StepRequest) -> bool:
        node = node_of(decision.node_id, self._ports)
        slots = slots_of(node.pool, self._ports, self._policy).total
        if not self._ports.pools.claim(node.pool, node.node_id, slots):
            self.result.budget_refused.append(self._decided(asked, f"{slots} of {slots} nodes were out of service"))
            return False
        save_node(self._ports, node, state=NodeState.ISOLATED, state_reason=decision.reason)
        self.result.nodes_touched.add(node.node_id)
        return True

    def _worked(self, decision: Decision) -> StepResult:
        """As if the step had gone well."""
        if decision.action is not None:
            self.result.actions[decision.action.value] += 1
        node = node_of(decision.node_id, self._ports)
        if decision.step is Step.RETURN:
            self._back_in(self._pace.repair_seconds, node.node_id)
            save_node(self._ports, node, state=NodeState.PROBATION)
        if decision.step is Step.REPLACE:
            return self._swapped(decision, node)
        verb = VERBS.get(decision.action) if decision.action is not None else None
        has_booted = verb is not None and verb.is_escalation_step and not verb.keeps_boot
        boot = f"after-{node.boot_id}" if has_booted else node.boot_id
        facts: Isolated | EvidenceSaved | None = None
        if decision.step is Step.ISOLATE:
            facts = Isolated(is_drained=True)
        if decision.accused is not None:
            facts = EvidenceSaved(accused=decision.accused.about, confirmation=Confirmation.CONFIRMED)
        worked = self._result(decision, Outcome.DONE, "taken to work", boot=boot)
        # As if the node had run ever since: how long a repair takes is the pace's business.
        since = self._clock() - timedelta(seconds=self._policy.stable_seconds)
        if decision.step is Step.RESTART_WORKLOAD:
            # What is known by now is of the run before.
            since = self._clock() + timedelta(seconds=self._pace.react_seconds)
        return worked.model_copy(update={"facts": facts, "finished_at": since})

    def _swapped(self, decision: Decision, node: Node) -> StepResult:
        """The spare is another node than any that the record names; it counts for no pool."""
        spare = replace(node, node_id=f"spare-for-{node.node_id}", pool="(spares)", state=NodeState.HEALTHY, version=0)
        self._ports.nodes.save(spare)
        return self._result(decision, Outcome.DONE, "swapped for a spare", boot=spare.boot_id, spare=spare.node_id)

    def _leave_to_a_human(self, node_id: str) -> None:
        if node_of(node_id, self._ports).state in OUT_OF_SERVICE:
            self._back_in(self._pace.human_seconds, node_id)

    def _back_in(self, seconds: int, node_id: str) -> None:
        self._back[node_id] = self._clock() + timedelta(seconds=seconds)

    def _return_nodes(self) -> None:
        for node_id in [node_id for node_id, at in self._back.items() if at <= self._clock()]:
            del self._back[node_id]
            node = node_of(node_id, self._ports)
            if node.state in OUT_OF_SERVICE:
                save_node(self._ports, node, state=NodeState.HEALTHY, open_incident=None)
            self._ports.pools.release(node.pool, node_id)
            wake_queue(node.pool, self._ports)

    def _waited(self, incident_id: str, outcome: Outcome, reason: str) -> StepResult:
        decision = self._ports.incidents.history(incident_id).turns[-1].decision
        return self._result(decision, outcome, reason)

    def _result(
        self, decision: Decision, outcome: Outcome, reason: str, boot: str | None = None, spare: str | None = None
    ) -> StepResult:
        return StepResult(
            step=decision.step,
            node_id=decision.node_id,
            outcome=outcome,
            reason=reason,
            finished_at=self._clock(),
            boot_id=boot,
            replacement_node_id=spare,
        )

    def _note(self, asked: StepRequest, outcome: str) -> None:
        self.result.decisions.append(self._decided(asked, asked.decision.reason, outcome))

    def _decided(self, asked: StepRequest, reason: str, outcome: str = "") -> Decided:
        decision = asked.decision
        return Decided(
            self._clock(), asked.incident_id, decision.node_id, decision.fault, decision.step.value, reason, outcome
        )
