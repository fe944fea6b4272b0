"""freeze_evidence: see nodeheal/operations/steps.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.steps import freeze_evidence

handler = step(StepRequest, lambda request: freeze_evidence(request, ports(), policy()), reads_policy=True)
