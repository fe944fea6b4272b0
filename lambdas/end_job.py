"""end_job: see nodeheal/services/jobs/end_job.py."""

from lambdas.composition import ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.end_job import end_job

handler = step(JobRequest, lambda request: end_job(request, ports()))
