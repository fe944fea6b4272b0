"""isolate_node: see nodeheal/operations/isolate.py.

Its step is often over when it returns, so it decides what follows.
"""

from lambdas.composition import policy, step
from lambdas.deciding import deciding_ports
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.verbs import run_step

handler = step(StepRequest, lambda request: run_step(request, deciding_ports(), policy()))
