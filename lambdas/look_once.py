"""look_once: see nodeheal/services/look_once.py."""

from lambdas.composition import ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.look_once import look_once

handler = step(StepRequest, lambda request: look_once(request, ports()))
