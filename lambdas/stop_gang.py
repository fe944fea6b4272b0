"""stop_gang: see nodeheal/services/jobs/stop_gang.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.jobs.stop_gang import stop_gang

handler = step(StepRequest, lambda request: stop_gang(request, ports(), policy()), reads_policy=True)
