"""The timeline of an incident: what happened, in entries that a program can read.

An entry is written once, under its own id, and never changed. Its text is for people. What the code has to know of it
stands in its payload.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import INSTANCE_GONE
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Verdict
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.recovery.approval_links import Answer


class EntryKind(StrEnum):
    """What people are shown as the sort of an entry."""

    event = "event"
    decision = "decision"
    result = "result"
    answer = "answer"
    progress = "progress"


@dataclass(frozen=True)
class NodeDrained:
    """The scheduler gives the node no new work."""


@dataclass(frozen=True)
class AttemptReserved:
    """The attempt of a destructive step is counted."""


@dataclass(frozen=True)
class CheckpointRequested:
    """The job is asked to write a checkpoint before it is stopped."""


@dataclass(frozen=True)
class JobLeft:
    """Another incident has left its job to this one, which brings it back."""

    incident_id: str


@dataclass(frozen=True)
class NodeReleased:
    """A person has given the node back to work."""


@dataclass(frozen=True)
class RequestWithdrawn:
    """A person has taken back what was asked for by hand."""


@dataclass(frozen=True)
class ApprovalAnswered:
    """The first answer to the question of a turn."""

    answer: Answer


@dataclass(frozen=True)
class AnswerRefused:
    """An answer that came too late, or is not possible now."""

    answer: Answer


@dataclass(frozen=True)
class MachineRecorded:
    """What the machine of a node was, before it is replaced."""

    node_id: str
    machine: Machine


@dataclass(frozen=True)
class TaskToStop:
    """An unmanaged task that is stopped for the recovery, with all that its restart needs."""

    task: UnmanagedTask


@dataclass(frozen=True)
class TaskLeftRunning:
    """An unmanaged task that nobody allows to be stopped."""

    task: UnmanagedTask


@dataclass(frozen=True)
class TaskGone:
    """An unmanaged task that had ended, or was requeued, before nodeheal came."""

    task: UnmanagedTask


@dataclass(frozen=True)
class TaskStopped:
    """The scheduler's answer to a stop. `by_us`: the task ran until then. `is_held`: a person has to release it."""

    short_id: str
    by_us: bool
    is_held: bool = False


@dataclass(frozen=True)
class TaskStarted:
    """The start of a stopped task. `successor`: the task in its place; empty: the start was refused."""

    short_id: str
    successor: str


Payload = (
    HealthEvent
    | Decision
    | StepResult
    | NodeDrained
    | AttemptReserved
    | CheckpointRequested
    | JobLeft
    | NodeReleased
    | RequestWithdrawn
    | ApprovalAnswered
    | AnswerRefused
    | MachineRecorded
    | TaskToStop
    | TaskLeftRunning
    | TaskGone
    | TaskStopped
    | TaskStarted
)
# By the tag under which they are stored.
PAYLOADS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in Payload.__args__}
_KINDS: Mapping[type[Any], EntryKind] = {
    HealthEvent: EntryKind.event,
    Decision: EntryKind.decision,
    StepResult: EntryKind.result,
    ApprovalAnswered: EntryKind.answer,
    AnswerRefused: EntryKind.answer,
}
P = TypeVar("P")


@dataclass(frozen=True)
class TimelineEntry:
    """One line of the incident's story.

    `entry_id` makes writing it twice harmless, and says nothing else. `turn`: the decision to which it belongs, counted
    from 0; None: to none. `times`: how many events it stands for, itself included. `actor`: the ARN of the person who
    has acted, as AWS has authenticated it; None: nodeheal, a node, or a person who holds a link.
    """

    at: datetime
    entry_id: str
    text: str
    payload: Payload | None = None
    turn: int | None = None
    times: int = 1
    actor: str | None = None

    @property
    def kind(self) -> EntryKind:
        """What people are shown as its sort."""
        return _KINDS.get(type(self.payload), EntryKind.progress)


def payloads_of(timeline: Iterable[TimelineEntry], kind: type[P]) -> list[P]:
    """Returns the payloads of this type, in the order of the timeline."""
    return [entry.payload for entry in timeline if isinstance(entry.payload, kind)]


def entries_with(timeline: Iterable[TimelineEntry], *kinds: type[Any]) -> list[TimelineEntry]:
    """Returns the entries whose payload is of one of these types, in the order of the timeline."""
    return [entry for entry in timeline if isinstance(entry.payload, kinds)]


def event_entry(event: HealthEvent) -> TimelineEntry:
    """Returns the timeline entry of an event. The same event always makes the same entry."""
    entry_id = f"event-{event.event_id}"
    if event.code == INSTANCE_GONE and event.verdict is Verdict.OK:
        text = f"{event.node_id}: its machine is {event.subcode}, as it may be: the node is out of service"
        return TimelineEntry(event.observed_at, entry_id, text, event)
    component = f" on {event.component}" if event.component else ""
    text = f"{event.node_id} reports {event.family.value.upper()} {event.code}{component}: {event.verdict}"
    return TimelineEntry(event.observed_at, entry_id, text, event)


def decision_entry(turn: int, decision: Decision, at: datetime) -> TimelineEntry:
    """Returns the timeline entry of a turn's decision."""
    return TimelineEntry(at, f"decision-{turn:04d}", f"{decision.step}: {decision.reason}", decision, turn)


def result_entry(turn: int, result: StepResult) -> TimelineEntry:
    """Returns the timeline entry of a turn's result."""
    text = f"{result.step} {result.outcome}: {result.reason}"
    return TimelineEntry(result.finished_at, f"result-{turn:04d}", text, result, turn)


def in_order(entries: Iterable[TimelineEntry]) -> tuple[TimelineEntry, ...]:
    """Returns the entries by time; of one time events first, then turn by turn, and a turn's result last."""
    return tuple(sorted(entries, key=_place))


def _place(entry: TimelineEntry) -> tuple[datetime, bool, float, int, str]:
    in_turn = {EntryKind.decision: 0, EntryKind.result: 2}.get(entry.kind, 1)
    turn = float("inf") if entry.turn is None else entry.turn
    return entry.at, entry.kind is not EntryKind.event, turn, in_turn, entry.entry_id
