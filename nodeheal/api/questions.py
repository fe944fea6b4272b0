"""What incidents ask of people, as an answer names it."""

from nodeheal.domain.recovery.approval_links import Question
from nodeheal.ports import Ports
from nodeheal.services.operators import answer_approval


def open_question(incident_id: str, ports: Ports) -> Question:
    """Return what the incident asks now, for Approve and Refuse. Raises NotFound; ValueError where it asks nothing."""
    return answer_approval.open_question(incident_id, ports)
