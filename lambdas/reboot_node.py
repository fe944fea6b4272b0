"""reboot_node: see nodeheal/services/reboot_node.py."""

from lambdas.composition import ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.reboot_node import reboot_node

handler = step(StepRequest, lambda request: reboot_node(request, ports()))
