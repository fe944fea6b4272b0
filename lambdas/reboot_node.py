"""reboot_node: see nodeheal/operations/steps.py."""

from lambdas.composition import ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.steps import reboot_node

handler = step(StepRequest, lambda request: reboot_node(request, ports()))
