"""attribute_failure: see nodeheal/services/jobs/attribute_failure.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.attribute_failure import attribute_failure

handler = step(JobRequest, lambda request: attribute_failure(request, ports(), policy()))
