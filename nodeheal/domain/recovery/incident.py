"""An incident: one fault on one node, from its first event to its end."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DIAGNOSE, DRAIN, DRILL_MARK, NEW_NODE, OPERATOR_REQUEST, ROUTINE_CHECKS, SILENCES
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Family, IncidentState, Outcome, Step, Verdict
from nodeheal.domain.recovery.decision_context import DecisionContext
from nodeheal.domain.recovery.timeline import JobLeft, TimelineEntry, in_order, payloads_of

ABOUT_DRILLS = "an operator has injected this fault. What is done about it is real."
RESTARTED = "restarted"  # what is said of a recovery that has brought its job back and healed no node


@dataclass(frozen=True)
class Incident:
    """The head of an incident. Its story is in the timeline."""

    incident_id: str
    node_id: str
    pool: str
    root: HealthEvent
    opened_at: datetime
    policy_version: str
    state: IncidentState = IncidentState.OPEN
    turn: int = 0
    job_id: str | None = None
    ending: Ending | None = None
    summary: str = ""
    closed_at: datetime | None = None
    has_only_restarted: bool = False  # it brought the job back, took no node out of service, and healed none
    step: Step | None = None  # the one that its last decision asked for; None: nothing is decided yet
    step_at: datetime | None = None  # when that was decided
    awaits: Awaited | None = None  # what that step waits for

    @property
    def place(self) -> tuple[str, str]:
        """Where it stands in lists: by when it was opened, to the second, and then by its id."""
        return f"{self.opened_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", self.incident_id

    @property
    def is_of_new_node(self) -> bool:
        """Whether it began because its node had never been diagnosed."""
        return self.root.code == NEW_NODE and not self.root.is_from_node

    @property
    def is_routine(self) -> bool:
        """Whether it began without any sign of a fault: its node was new, or free for long."""
        return self.root.code in ROUTINE_CHECKS and not self.root.is_from_node

    @property
    def is_drain(self) -> bool:
        """Whether an operator wants its node drained."""
        return self.root.code == OPERATOR_REQUEST and self.root.subcode == DRAIN

    @property
    def needs_proof_only(self) -> bool:
        """Whether nothing is known to be wrong with its node: it is new or free, or an operator wants it diagnosed."""
        return self.is_routine or (self.root.code == OPERATOR_REQUEST and self.root.subcode == DIAGNOSE)

    @property
    def began_as_drill(self) -> bool:
        """Whether an operator has injected its first fault."""
        return DRILL_MARK in self.root.evidence

    @property
    def is_under_way(self) -> bool:
        """Whether a workflow works on it. One that has broken off is for a human."""
        return self.state in (IncidentState.OPEN, IncidentState.WAITING)


@dataclass(frozen=True)
class Turn:
    """One decision, when it was taken, and its result, once that is known."""

    decision: Decision
    result: StepResult | None = None
    decided_at: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """What it took, from the decision to the result. None: it has not ended."""
        if self.result is None or self.decided_at is None:
            return None
        return (self.result.finished_at - self.decided_at).total_seconds()

    @property
    def is_refused(self) -> bool:
        """Whether the step was refused, so that nothing was done."""
        return self.result is not None and self.result.outcome is Outcome.REFUSED


@dataclass(frozen=True)
class History:
    """Everything known of an incident, in order. Decisions are made from it."""

    incident: Incident
    events: tuple[HealthEvent, ...]
    turns: tuple[Turn, ...]
    timeline: tuple[TimelineEntry, ...] = ()
    context: DecisionContext = field(default_factory=DecisionContext)

    @property
    def event_count(self) -> int:
        """How many events have joined it, including those that folded entries stand for."""
        return len(self.events) + sum(entry.times - 1 for entry in self.timeline)

    @property
    def is_only_a_check(self) -> bool:
        """Whether nothing is to be reported of it, and no job needs the node: the node is new, or it was free and has
        shown no fault.
        """
        shows_no_fault = all(event.code in ROUTINE_CHECKS or event.verdict is Verdict.OK for event in self.events)
        return self.incident.is_of_new_node or (self.incident.is_routine and shows_no_fault)

    @property
    def must_restart_job_for_others(self) -> bool:
        """Whether another incident relies on this one to restart their job."""
        return bool(payloads_of(self.timeline, JobLeft))

    def rebased_on_latest_boot(self) -> "History":
        """Returns the history as if it had begun on the newest boot on which the node failed before its isolation.

        A fault that comes again after a reboot has joined the incident. It must not be dropped with those of the old
        boot.
        """
        root = self.incident.root
        steps = [turn for turn in self.turns if turn.decision.step is Step.ISOLATE]
        counts = [turn.decision.events_seen for turn in steps if not turn.is_refused]
        known = self._first_events(counts[-1]) if counts else self.events
        bad = [event for event in known if event.node_id == root.node_id and event.verdict is not Verdict.OK]
        later = [event for event in bad if event.boot_id != root.boot_id and event.observed_at > root.observed_at]
        if not later:
            return self
        first = next(event for event in later if event.boot_id == later[-1].boot_id)
        return replace(self, incident=replace(self.incident, root=first))

    def _first_events(self, count: int) -> tuple[HealthEvent, ...]:
        """Returns the first `count` events. A folded entry counts for as many as it stands for."""
        folded = {e.payload.event_id: e.times for e in self.timeline if isinstance(e.payload, HealthEvent)}
        known = []
        for event in self.events:
            count -= folded.get(event.event_id, 1)
            if count < 0:
                break
            known.append(event)
        return tuple(known)

    def has_booted_since(self, event: HealthEvent) -> bool:
        """Tells whether the node runs another boot than the one that the event is about."""
        return not is_boot_independent(event) and self.context.boot_id not in ("", event.boot_id)

    @property
    def is_drill(self) -> bool:
        """Whether every fault was injected. One fault that nobody injected makes it a real incident.

        A silence that proves nothing is no fault: every reboot, a drill's as well, cuts the node off for a while.
        """
        wrong = [event for event in self.events if event.verdict is not Verdict.OK and not _is_mere_silence(event)]
        return self.incident.began_as_drill and all(DRILL_MARK in event.evidence for event in wrong)

    def has_only_restarted(self, ending: Ending) -> bool:
        """Whether the recovery that ends so took no node out of service: its job runs again, and may fail again."""
        return ending is Ending.RECOVERED and all(turn.decision.step is not Step.ISOLATE for turn in self.turns)


def incident_id_of(event: HealthEvent) -> str:
    """Returns the incident that this event would open. The same event always names the same incident.

    The id has at most 80 characters of [A-Za-z0-9-_], because the execution has the same name. Its shape is
    `contract.words.INCIDENT`: by it a reason in a scheduler is known as nodeheal's.
    """
    digest = sha256(f"{event.node_id}/{event.event_id}".encode()).hexdigest()[:10]
    node = "".join(c if c.isalnum() else "-" for c in event.node_id)[-24:]
    return f"inc-{event.observed_at:%Y%m%dT%H%M%S}-{node}-{digest}"


def short_id(incident_id: str) -> str:
    """Returns the end of an incident's id, which no other incident has. Commands take it for the whole id."""
    return incident_id.rpartition("-")[2]


def is_boot_independent(event: HealthEvent) -> bool:
    """Tells whether the event holds for later boots of the node, too.

    That the node is new or free does, and what an operator has requested, unless it is a reboot.
    """
    return event.code in ROUTINE_CHECKS or (event.code == OPERATOR_REQUEST and event.subcode != Action.REBOOT)


def _is_mere_silence(event: HealthEvent) -> bool:
    return event.code in SILENCES and event.verdict is Verdict.UNKNOWN


def fingerprint(event: HealthEvent) -> str:
    """Returns what makes two findings the same fault on one boot."""
    return fingerprint_of(event.family, event.code, event.subcode, event.component, event.boot_id)


def fingerprint_of(family: Family, code: str, subcode: str | None, component: str | None, boot_id: str) -> str:
    """Returns the fingerprint of a finding that is not reported yet."""
    return "|".join((family.value, code, subcode or "", component or "-", boot_id))


def read_history(incident: Incident, entries: Iterable[TimelineEntry]) -> History:
    """Reads a timeline into a history: events by time, turns by number."""
    timeline = in_order(entries)
    results = {entry.turn: entry.payload for entry in timeline if isinstance(entry.payload, StepResult)}
    turns = {
        entry.turn: Turn(entry.payload, results.get(entry.turn), entry.at)
        for entry in timeline
        if isinstance(entry.payload, Decision) and entry.turn is not None
    }
    return History(
        incident,
        events=tuple(payloads_of(timeline, HealthEvent)),
        turns=tuple(turns[number] for number in sorted(turns)),
        timeline=timeline,
    )
