"""Limits the length of an incident's timeline: repeated events are counted in one entry, and the rest are removed.

Every step of a recovery reads the whole timeline, so a node that reports without end must not make it endless. The
first events of each finding stay, and the newest one. Of too many findings, the most disruptive ones stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DRILL_MARK, OPERATOR_REQUEST
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.recovery.incident import History, fingerprint
from nodeheal.domain.recovery.timeline import TimelineEntry, event_entry
from nodeheal.domain.verbs import DISRUPTIVENESS

SAME_EVENTS_AT_MOST = 8  # of one finding of one node on one boot
EVENTS_AT_MOST = 100  # of one incident, some 10 KiB each
FOLDED_AT_ONCE = 50  # DynamoDB takes 100 writes in one transaction

ReportedEvent = tuple[TimelineEntry, HealthEvent]


@dataclass(frozen=True)
class Fold:
    """One write: `gone` are removed, and `into` replaces `before` and counts them, too."""

    gone: Sequence[TimelineEntry]
    before: TimelineEntry
    into: TimelineEntry


def fold_of(event: HealthEvent, history: History) -> Fold | None:
    """Returns what to fold after this event has joined the timeline. None: the timeline is within its limits."""
    events = [(entry, entry.payload) for entry in history.timeline if isinstance(entry.payload, HealthEvent)]
    same = [pair for pair in events if _kind(pair[1]) == _kind(event)]
    if len(same) > SAME_EVENTS_AT_MOST:
        gone = [pair for pair in same[SAME_EVENTS_AT_MOST - 1 : -1] if _may_go(pair[1], history)]
        return _fold(gone, same[-1]) if gone else None
    if len(events) > EVENTS_AT_MOST:
        movable = sorted((pair for pair in events if _may_go(pair[1], history)), key=_weight)
        gone = movable[: len(events) - EVENTS_AT_MOST]
        left = [pair for pair in events if pair not in gone[:FOLDED_AT_ONCE]]
        return _fold(gone, left[-1]) if gone else None
    return None


def _kind(event: HealthEvent) -> tuple[str, str, str, bool]:
    """Returns what makes two events equal. An injected event is never equal to a real one."""
    return (event.node_id, fingerprint(event), event.verdict.value, DRILL_MARK in event.evidence)


def _may_go(event: HealthEvent, history: History) -> bool:
    """Tells whether the entry may be removed.

    The first event and operators' requests stay, because others look them up.
    """
    return event.event_id != history.incident.root.event_id and event.code != OPERATOR_REQUEST


def _weight(pair: ReportedEvent) -> tuple[int, float]:
    """Orders events by how much they ask for. Of equals, the newest is the lightest."""
    row = find(pair[1].family, pair[1].code, pair[1].subcode)
    return (DISRUPTIVENESS[row.action] if row else -1, -pair[1].observed_at.timestamp())


def _fold(gone: Sequence[ReportedEvent], target: ReportedEvent) -> Fold:
    entries = [entry for entry, _ in gone[:FOLDED_AT_ONCE]]
    before, event = target
    times = before.times + sum(entry.times for entry in entries)
    text = f"{event_entry(event).text} (stands for {times} events)"
    return Fold(entries, before, replace(before, times=times, text=text))
