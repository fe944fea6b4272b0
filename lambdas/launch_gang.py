"""launch_gang: see nodeheal/services/jobs/launch_gang.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.jobs.launch_gang import launch_gang

handler = step(StepRequest, lambda request: launch_gang(request, ports(), policy()), reads_policy=True)
