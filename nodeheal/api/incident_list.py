"""Queries that list incidents. They read less than those about one incident, and import less."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from nodeheal.api.views import IncidentRow
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import StateWord, doing_now, state_word, title_of
from nodeheal.ports import Ports
from nodeheal.services.operators.review_incidents import list_incidents


def incidents(
    pools: Sequence[str], ports: Ports, since: datetime, words: Collection[StateWord] = ()
) -> list[IncidentRow]:
    """Return the incidents of these pools that were opened since, the newest first.

    `words`: only those that stand so; empty: all.
    """
    found = list_incidents(ports, pools, list(IncidentState), since)
    return [row(incident) for incident in found if not words or state_word(incident) in words]


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
