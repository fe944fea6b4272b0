"""escalate_incident: see nodeheal/services/escalate_incident.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.escalate_incident import escalate_incident

handler = step(StepRequest, lambda request: escalate_incident(request, ports(), policy()))
