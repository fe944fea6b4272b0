"""replace_node: see nodeheal/services/recovery/replace_node.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.recovery.replace_node import replace_node

handler = step(StepRequest, lambda request: replace_node(request, ports(), policy()), reads_policy=True)
