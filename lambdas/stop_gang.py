"""stop_gang: see nodeheal/operations/stop_gang.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.steps import stop_gang

handler = step(StepRequest, lambda request: stop_gang(request, ports(), policy()))
