"""reserve_attempt: see nodeheal/services/reserve_attempt.py."""

from lambdas.composition import ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.domain.review.measures import of_reservation
from nodeheal.services.reserve_attempt import reserve_attempt

handler = step(StepRequest, lambda request: reserve_attempt(request, ports()), measure=of_reservation)
