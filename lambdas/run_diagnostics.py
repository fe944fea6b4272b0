"""run_diagnostics: see nodeheal/operations/steps.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.steps import run_diagnostics

handler = step(StepRequest, lambda request: run_diagnostics(request, ports(), policy()), reads_policy=True)
