"""isolate_node: see nodeheal/operations/isolate.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.steps import isolate_node

handler = step(StepRequest, lambda request: isolate_node(request, ports(), policy()), reads_policy=True)
