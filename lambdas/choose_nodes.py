"""choose_nodes: see nodeheal/services/jobs/choose_nodes.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.choose_nodes import choose_nodes

handler = step(JobRequest, lambda request: choose_nodes(request, ports(), policy()))
