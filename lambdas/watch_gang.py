"""watch_gang: see nodeheal/services/jobs/watch_gang.py."""

from lambdas.composition import ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.watch_gang import watch_gang

handler = step(JobRequest, lambda request: watch_gang(request, ports()))
