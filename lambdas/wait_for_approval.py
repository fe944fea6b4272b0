"""wait_for_approval: see nodeheal/operations/steps.py."""

from lambdas.composition import links, ports, step
from nodeheal.contract import metrics
from nodeheal.contract.steps import StepRequest
from nodeheal.domain.review.measures import Measure
from nodeheal.operations.steps import wait_for_approval

handler = step(
    StepRequest,
    lambda request: wait_for_approval(request, ports(), links()),
    measure=lambda request, _: [Measure(metrics.APPROVALS_ASKED)],
)
