"""await_nodes: see nodeheal/operations/await_nodes.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.operations.steps import await_nodes

handler = step(JobRequest, lambda request: await_nodes(request, ports(), policy()))
