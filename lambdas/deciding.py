"""For functions that end a step: they make the next decision at once, and the workflow need not ask for it."""

from dataclasses import replace

from lambdas.composition import emit, policy, ports
from nodeheal.contract.steps import DecideRequest, Decision
from nodeheal.domain.review.measures import of_decision
from nodeheal.ports import Ports
from nodeheal.services.recovery.decide_next_step import decide_at_once


def deciding_ports() -> Ports:
    """Every port, and the decision."""
    return replace(ports(), decide=_decide)


def _decide(request: DecideRequest) -> Decision | None:
    decision = decide_at_once(request, ports(), policy())
    emit(lambda: of_decision(request, decision) if decision is not None else ())
    return decision
