"""return_to_service: see nodeheal/services/recovery/return_to_service.py."""

from lambdas.composition import policy, step
from lambdas.deciding import deciding_ports
from nodeheal.contract.steps import StepRequest
from nodeheal.services.recovery.return_to_service import return_to_service

handler = step(StepRequest, lambda request: return_to_service(request, deciding_ports(), policy()))
