"""stop_job: see nodeheal/services/jobs/stop_job.py."""

from lambdas.composition import ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.stop_job import stop_job

handler = step(JobRequest, lambda request: stop_job(request, ports()))
