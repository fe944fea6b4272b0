"""check_nodes: see nodeheal/services/jobs/check_nodes.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.check_nodes import check_nodes

handler = step(JobRequest, lambda request: check_nodes(request, ports(), policy()), reads_policy=True)
