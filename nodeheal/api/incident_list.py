"""Queries that list incidents. They read less than those about one incident, and import less."""

from collections.abc import Iterator, Sequence, Set
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby
from typing import Any

from nodeheal.api.pages import WHOLE, ListKind, Page, Rows, bad_cursor, place_of, take
from nodeheal.api.views import IncidentRow
from nodeheal.contract.health_event import YEARS
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import StateWord, doing_now, state_word, title_of
from nodeheal.ports import Ports
from nodeheal.services.operators.review_incidents import CLOCK_SKEW

# No closed incident is in one of these states, and most incidents are closed.
_NOT_CLOSED = frozenset({StateWord.open, StateWord.waiting, StateWord.handed_over, StateWord.escalated})


def incidents(
    pools: Sequence[str], ports: Ports, since: datetime, words: Set[StateWord] = frozenset(), page: Page = WHOLE
) -> Rows[IncidentRow]:
    """Return the incidents of these pools that were opened since, the newest first.

    `words`: only those that stand so; empty: all. Raises ValueError for a cursor of another list.
    """
    states = [state for state in IncidentState if not words or state is not IncidentState.CLOSED or words - _NOT_CLOSED]
    records = _records(pools, ports, since, states, page)
    wanted = (incident for incident in records if not words or state_word(incident) in words)
    items, cursor = take(wanted, page, ListKind.incidents, lambda incident: incident.place)
    return Rows[IncidentRow](rows=tuple(map(row, items)), next=cursor)


def _records(
    pools: Sequence[str], ports: Ports, since: datetime, states: Sequence[IncidentState], page: Page
) -> Iterator[Incident]:
    """Yield the incidents behind the page's cursor, and read no more of them than are consumed."""
    until, before = ports.clock() + CLOCK_SKEW, place_of(page, ListKind.incidents, 2)
    if before is not None:
        until = _opened_at(before, page) + timedelta(seconds=1)  # of its second, those before it follow
        if until < since:
            return
    each = [
        ports.fleet_index.newest_incidents(pool, state, since, until, page.read_at_once)
        for state in states  # in the order of an incident's life
        for pool in pools
    ]
    records = merge(*each, key=lambda incident: incident.place, reverse=True)
    for place, same in groupby(records, lambda incident: incident.place):
        *_, newest = same  # one that has moved on while this is read stands in two states, and its newer one counts
        if before is None or place < before:
            yield newest


def _opened_at(place: Sequence[str], page: Page) -> datetime:
    try:
        opened_at = datetime.strptime(place[0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise bad_cursor(page.after, ListKind.incidents) from None
    if opened_at.year not in YEARS:
        raise bad_cursor(page.after, ListKind.incidents)
    return opened_at


def row(incident: Incident) -> IncidentRow:
    """Return an incident's row."""
    return IncidentRow(**row_fields(incident))


def row_fields(incident: Incident) -> dict[str, Any]:
    """Return the fields of an incident's row, for rows that have more."""
    is_under_way = incident.is_under_way
    return {
        "incident": incident.incident_id,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "node": incident.node_id,
        "pool": incident.pool,
        "job": incident.job_id,
        "state": incident.state,
        "word": state_word(incident),
        "ending": incident.ending,
        "step": incident.step if is_under_way else None,
        "step_at": incident.step_at if is_under_way else None,
        "waits_for": incident.awaits if is_under_way else None,
        "doing": doing_now(incident),
        "fault": title_of(incident.root),
        "began_as_drill": incident.began_as_drill,
        "summary": incident.summary or None,
    }
