"""watch_gang: see nodeheal/operations/watch_gang.py."""

from lambdas.composition import ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.operations.steps import watch_gang

handler = step(JobRequest, lambda request: watch_gang(request, ports()))
