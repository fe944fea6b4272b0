"""Queries about one incident, and what it asks of a person."""

from collections.abc import Callable

from nodeheal.api.incident_views import (
    AnswerMeanings,
    IncidentReview,
    IncidentView,
    NeededRow,
    QuestionView,
)
from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.ports import Ports
from nodeheal.services.operators.review_incidents import review_incident


def incident(incident_id: str, ports: Ports, policy: Callable[[], RecoveryPolicy]) -> IncidentView:
    """Return one incident. `policy` is read only where what is needed depends on it. Raises NotFound."""
    review = IncidentReview.model_validate(review_incident(incident_id, ports), from_attributes=True)
    return IncidentView(
        **dict(review),
        asked=question(incident_id, ports) if review.state is IncidentState.WAITING else None,
        needed=_needed(incident_id, ports, policy) if review.state is not IncidentState.CLOSED else (),
    )


def question(incident_id: str, ports: Ports) -> QuestionView | None:
    """Return what an incident asks now. None: nothing. Raises NotFound."""
    # Only here: what an answer does takes many modules.
    from nodeheal.services.operators.answer_approval import asked_now

    asked = asked_now(incident_id, ports)
    if asked is None:
        return None
    means = AnswerMeanings(approve=asked.means[Answer.approve], refuse=asked.means[Answer.refuse])
    return QuestionView(turn=asked.turn, asks=asked.asks, deadline_at=asked.deadline_at, means=means)


def _needed(incident_id: str, ports: Ports, policy: Callable[[], RecoveryPolicy]) -> tuple[NeededRow, ...]:
    # Only here, too: it reads everything that the email is composed from.
    from nodeheal.services.operators.needed_now import needed_now

    parts = needed_now(incident_id, ports, policy)
    return tuple(NeededRow(text=text, commands=tuple(line.strip() for line in lines)) for text, lines in parts)
