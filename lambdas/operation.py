"""Each function whose step of a recovery is one operation. Which one it is, says the decision in its request.

See nodeheal/operations/verbs.py.
"""

from lambdas.composition import policy, ports, reads_policy, step
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.verbs import run_step

handler = step(StepRequest, lambda request: run_step(request, ports(), policy() if reads_policy() else None))
