"""replace_node: see nodeheal/operations/replace.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.steps import replace_node

handler = step(StepRequest, lambda request: replace_node(request, ports(), policy()), reads_policy=True)
