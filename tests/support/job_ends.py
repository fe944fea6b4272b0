"""How a run of a job ends."""

from typing import Any

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome
from nodeheal.ports import Ports
from nodeheal.services.jobs.end_job import end_job
from tests.support.builders import NOW
from tests.support.job_cluster import NODES

WHY = f"rank 1 on {NODES[1]} ended with exit code 1"


def ends(ports: Ports, ending: JobState, **said: Any) -> JobResult:
    last = JobResult(
        step=JobStep.STOP,
        job_id="llama",
        outcome=Outcome.DONE,
        then=Next.END,
        reason=WHY,
        finished_at=NOW,
        ending=ending,
        **said,
    )
    return end_job(JobRequest(job_id="llama", submission=1, round=4, last=last), ports)
