"""isolate_node: see nodeheal/services/recovery/isolate_node.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.recovery.isolate_node import isolate_node

handler = step(StepRequest, lambda request: isolate_node(request, ports(), policy()), reads_policy=True)
