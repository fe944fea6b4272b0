"""Queries about many incidents: what they add up to, and what they say about one part."""

from collections.abc import Sequence

from nodeheal.api.incident_views import IncidentReport, IncidentReview, IncidentTally, PartView
from nodeheal.domain.review.incident_stats import summarize
from nodeheal.domain.review.part_record import part_record
from nodeheal.ports import Ports
from nodeheal.services.operators.review_incidents import review_incident


def report(incident_ids: Sequence[str], ports: Ports, since: str, pool: str | None) -> IncidentReport:
    """Return these incidents, which are all of the time and the pool, and what they add up to. Raises NotFound."""
    reviews = [review_incident(name, ports) for name in incident_ids]
    return IncidentReport(
        since=since,
        pool=pool,
        tally=IncidentTally.model_validate(summarize(reviews), from_attributes=True),
        incidents=tuple(IncidentReview.model_validate(review, from_attributes=True) for review in reviews),
    )


def part(serial: str, incident_ids: Sequence[str], ports: Ports, since: str) -> PartView:
    """Return what these incidents say about the accelerator with this serial. Raises ValueError if none names it."""
    record = part_record(serial, (ports.incidents.history(name) for name in incident_ids))
    return PartView.model_validate({"since": since, **vars(record)}, from_attributes=True)
