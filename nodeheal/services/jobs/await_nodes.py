"""Stand in a pool's line for nodes."""

from datetime import timedelta

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import NODES_LINE, pool_line
from nodeheal.contract.vocabulary import JobStep, Next
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.jobs.job_nodes import look_for_nodes, place_of, waits_before
from nodeheal.services.jobs.job_steps import DEADLINES, job_of_request, job_result, job_token, request_id_of
from nodeheal.services.steps import resume_if_complete

JOB_NODES = "job_nodes"


def await_nodes(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Store the wait. Resumes when one may have become free, or the job is to be stopped."""
    job = job_of_request(request, ports)
    free = job_result(request, JobStep.CHOOSE, Next.CHOOSE, "a node may have become free", ports)
    wait = Wait(
        JOB_NODES,
        job.job_id,
        job_token(request),
        request_id_of(request),
        ports.clock() + timedelta(seconds=DEADLINES[Next.AWAIT_NODES]),
        result_json=free.model_dump_json(),
        line=(pool_line(NODES_LINE, job.pool), place_of(job)),
    )
    ports.waits.save(wait)
    # What became free between the choice and the wait has called nobody.
    found = look_for_nodes(job, ports, policy)
    if job.stop_wanted or (found.nodes and not waits_before(job, ports)):
        resume_if_complete(ports, wait)
