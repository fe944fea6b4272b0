"""Each function whose step is one operation, often over when the function returns. So it decides what follows.

See nodeheal/operations/verbs.py.
"""

from lambdas.composition import policy, step
from lambdas.deciding import deciding_ports
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.verbs import run_step

handler = step(StepRequest, lambda request: run_step(request, deciding_ports(), policy()))
