"""launch_job: see nodeheal/services/jobs/launch_job.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.launch_job import launch_job

handler = step(JobRequest, lambda request: launch_job(request, ports(), policy()), reads_policy=True)
