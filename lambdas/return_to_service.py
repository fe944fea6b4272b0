"""return_to_service: see nodeheal/services/recovery/return_to_service.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.recovery.return_to_service import return_to_service

handler = step(StepRequest, lambda request: return_to_service(request, ports(), policy()))
