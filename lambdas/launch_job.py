"""launch_job: see nodeheal/operations/launch_job.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.operations.steps import launch_job

handler = step(JobRequest, lambda request: launch_job(request, ports(), policy()))
