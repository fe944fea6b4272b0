"""close_incident: see nodeheal/services/close_incident.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.close_incident import close_incident

handler = step(StepRequest, lambda request: close_incident(request, ports(), policy()))
