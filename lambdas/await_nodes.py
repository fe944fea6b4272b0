"""await_nodes: see nodeheal/services/jobs/await_nodes.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.services.jobs.await_nodes import await_nodes

handler = step(JobRequest, lambda request: await_nodes(request, ports(), policy()), reads_policy=True)
