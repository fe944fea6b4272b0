"""Adds an event to an incident's timeline, and keeps the timeline within its bounds."""

import logging

from nodeheal.contract.health_event import HealthEvent
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.timeline import event_entry
from nodeheal.domain.recovery.timeline_fold import fold_of
from nodeheal.ports import Ports

logger = logging.getLogger(__name__)


def add_event(event: HealthEvent, incident_id: str, ports: Ports) -> tuple[bool, History]:
    """Whether it was new there, and the incident as it stands with it.

    What is left out of a fold that fails, because another function folds too, is folded with the next event.
    """
    is_new = ports.incidents.append(incident_id, event_entry(event))
    history = ports.incidents.history(incident_id)
    fold = fold_of(event, history) if is_new else None
    if fold is not None:
        try:
            ports.incidents.fold(incident_id, fold)
        except NotAccepted as busy:
            logger.info("the timeline is folded later", extra={"incident": incident_id, "why": str(busy)})
    return is_new, history
