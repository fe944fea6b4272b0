"""What is done about a decision, as data: each effect, and the one order in which they are carried out.

Each may be carried out twice, but for the record of the turn, which says that it is there. A call that breaks off is
repeated as a whole, from a new situation. An effect stands in a list where its decision asks for it; what carries it
out looks whether there is anything to do.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import IncidentState, NodeState, Step
from nodeheal.domain.faults.correlation import CommonCause
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.fleet.unmanaged_tasks import stopped_tasks
from nodeheal.domain.recovery.ending import incident_at_end, left_by_incident
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import TimelineEntry, decision_entry, result_entry


@dataclass(frozen=True)
class TripBreaker:
    """Opens the breaker of the incident's pool."""

    why: str


@dataclass(frozen=True)
class RecordTurn:
    """Stores the decision with the result before it. Only one of several calls for one turn can."""

    incident: Incident
    entries: tuple[TimelineEntry, ...]


@dataclass(frozen=True)
class RecordEnding:
    """Stores how the incident has ended."""

    incident: Incident


@dataclass(frozen=True)
class ReleaseNode:
    """Takes the incident off the node, or leaves the node to a human."""

    node_id: str


@dataclass(frozen=True)
class ReleaseCandidates:
    """Releases the free nodes that were diagnosed so that the job could go on there."""


@dataclass(frozen=True)
class ReleaseClaims:
    """Releases the nodes that a move of the job has claimed and does not use."""


@dataclass(frozen=True)
class FreePlace:
    """Gives back the place that the incident of a new node holds."""


@dataclass(frozen=True)
class WakeForFreeSlots:
    """Wakes as many incidents in the pool's line as it has free slots."""

    pool: str


@dataclass(frozen=True)
class WakeIncidentsOfJob:
    """Where the job is down: wakes the incidents on its other nodes that wait for its end.

    This incident will not restart it.
    """


@dataclass(frozen=True)
class ObserveJob:
    """Has the job's own workflow look again, now that the incident has ended."""

    job_id: str


@dataclass(frozen=True)
class CallNextJob:
    """Lets the next job in the pool's line try for nodes."""

    pool: str


@dataclass(frozen=True)
class PageWait:
    """Pages operators because the incident waits for them."""


@dataclass(frozen=True)
class AnnounceEnding:
    """Notifies operators of the ending."""


@dataclass(frozen=True)
class NotifyOwnerOfStep:
    """Notifies the owner of a job that a step has stopped or restarted."""

    result: StepResult


@dataclass(frozen=True)
class NotifyOwnerOfWait:
    """Notifies the owner of a job that is down while its recovery waits. `due`: when the wait ends."""

    due: datetime


@dataclass(frozen=True)
class NotifyOwnerOfEnding:
    """Notifies the owner of a job that the ending leaves down."""


@dataclass(frozen=True)
class NotifyTaskOwners:
    """Notifies the owners of tasks that the incident has stopped and their scheduler starts again."""

    tasks: tuple[UnmanagedTask, ...]


TurnEffect = (
    NotifyOwnerOfStep | NotifyTaskOwners | ReleaseCandidates | TripBreaker | NotifyOwnerOfWait | RecordTurn | PageWait
)
EndingEffect = (
    RecordEnding
    | ReleaseNode
    | ReleaseCandidates
    | ReleaseClaims
    | FreePlace
    | WakeForFreeSlots
    | WakeIncidentsOfJob
    | ObserveJob
    | CallNextJob
    | AnnounceEnding
    | NotifyOwnerOfEnding
    | NotifyTaskOwners
)


def effects_of_turn(
    situation: Situation,
    decision: Decision,
    turn: int,
    result: StepResult | None,
    cause: CommonCause | None,
    now: datetime,
) -> list[TurnEffect]:
    """Returns what is done when a turn is decided. The decision itself is stored behind what a crash must not lose.

    `result`: of the turn before, where it is known only now. `cause`: why the pool's breaker opens with this decision.
    """
    history, effects = situation.history, list[TurnEffect]()
    if result is not None:
        effects.append(NotifyOwnerOfStep(result))
        if result.step is Step.ISOLATE:
            stopped = stopped_tasks(history.timeline)
            effects.append(NotifyTaskOwners(tuple(each.task for each in stopped if each.is_restarted)))
    if situation.progress.replacement_failed:
        effects.append(ReleaseCandidates())  # before it could be taken for a spare of this incident
    if cause is not None:
        effects.append(TripBreaker(cause.text))
    if history.context.is_job_broken:
        effects.append(NotifyOwnerOfWait(now + timedelta(seconds=decision.deadline_seconds)))
    results = () if result is None else (result_entry(turn - 1, result),)
    effects.append(
        RecordTurn(_decided(history.incident, decision, turn, now), (*results, decision_entry(turn, decision, now)))
    )
    if cause is not None:
        # Each wait for the breaker pages under the same key: people get one email, also if this one is lost.
        effects.append(PageWait())
    return effects


def effects_of_ending(situation: Situation, decision: Decision, now: datetime) -> list[EndingEffect]:
    """Returns what is done when an incident ends. Emails come last; one that is sent again is dropped by its key."""
    history, run, incident = situation.history, situation.run, incident_at_end(situation.history, decision, now)
    assert situation.node is not None
    node_after = left_by_incident(situation.node, situation, decision, now)
    # From the history, and not from the pool's list, which lags: a spare that is forgotten is never free again.
    spares = {turn.result.replacement_node_id for turn in history.turns if turn.result} - {None, incident.node_id}
    late = [each.task for each in stopped_tasks(history.timeline) if each.has_stopped_late]
    is_handed_over = incident.state is IncidentState.ESCALATED
    # An ending that is stored keeps its time.
    effects: list[EndingEffect] = [RecordEnding(incident)] if history.incident.ending is None else []
    effects += [ReleaseNode(str(spare)) for spare in sorted(map(str, spares))]
    effects += [ReleaseCandidates(), ReleaseClaims(), ReleaseNode(incident.node_id), FreePlace()]
    if node_after.state is NodeState.QUARANTINED:
        effects.append(WakeForFreeSlots(node_after.pool))  # a policy may leave it out of the count (pool_size.slots_of)
    if run is not None:
        effects.append(WakeIncidentsOfJob())
    if incident.job_id:
        effects.append(ObserveJob(incident.job_id))
    effects.append(CallNextJob(node_after.pool))
    if is_handed_over or not history.is_only_a_check:  # a node that passes is no news
        effects.append(AnnounceEnding())
    return [*effects, NotifyOwnerOfEnding(), NotifyTaskOwners(tuple(late))]


def _decided(incident: Incident, decision: Decision, turn: int, now: datetime) -> Incident:
    state = IncidentState.WAITING if decision.step is Step.WAIT else IncidentState.OPEN
    if incident.state is IncidentState.CLOSED:
        state = IncidentState.CLOSED  # by a human's release: it only has to end
    return replace(incident, turn=turn + 1, state=state, step=decision.step, step_at=now, awaits=decision.awaits)
