"""wait_for_approval: see nodeheal/services/wait_for_approval.py."""

from lambdas.composition import links, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.wait_for_approval import wait_for_approval

handler = step(StepRequest, lambda request: wait_for_approval(request, ports(), links()))
