"""decide_next_step: see nodeheal/services/recovery/decide_next_step.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import DecideRequest
from nodeheal.domain.review.measures import of_decision
from nodeheal.services.recovery.decide_next_step import decide_next_step

handler = step(
    DecideRequest,
    lambda request: decide_next_step(request, ports(), policy()),
    measure=of_decision,
)
