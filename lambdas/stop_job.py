"""stop_job: see nodeheal/operations/stop_job.py."""

from lambdas.composition import ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.operations.steps import stop_job

handler = step(JobRequest, lambda request: stop_job(request, ports()))
