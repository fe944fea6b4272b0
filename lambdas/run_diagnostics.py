"""run_diagnostics: see nodeheal/operations/diagnose.py.

Its step may be over when it returns: the node ran what a reboot had left on it. So it decides what follows.
"""

from lambdas.composition import policy, step
from lambdas.deciding import deciding_ports
from nodeheal.contract.steps import StepRequest
from nodeheal.operations.verbs import run_step

handler = step(StepRequest, lambda request: run_step(request, deciding_ports(), policy()))
