"""end_incident: see nodeheal/services/recovery/end_incident.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.domain.review.measures import of_ending
from nodeheal.services.recovery.end_incident import end_incident

handler = step(
    StepRequest,
    lambda request: end_incident(request, ports(), policy()),
    measure=lambda request, _: of_ending(ports().incidents.history(request.incident_id), request.decision),
)
