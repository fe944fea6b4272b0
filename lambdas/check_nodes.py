"""check_nodes: see nodeheal/operations/check_node.py and network_test.py."""

from lambdas.composition import policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.operations.steps import check_nodes

handler = step(JobRequest, lambda request: check_nodes(request, ports(), policy()))
