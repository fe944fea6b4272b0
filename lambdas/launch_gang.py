"""launch_gang: see nodeheal/operations/launch_gang.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.steps import launch_gang

handler = step(StepRequest, lambda request: launch_gang(request, ports(), policy()))
