"""find_checkpoint: see nodeheal/services/jobs/find_checkpoint.py."""

from lambdas.composition import Event, policy, ports, step
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.steps import StepRequest
from nodeheal.services.jobs.find_checkpoint import find_checkpoint

_for_job = step(JobRequest, lambda request: find_checkpoint(request, ports(), policy()))
_for_recovery = step(StepRequest, lambda request: find_checkpoint(request, ports(), policy()))


def handler(event: Event, context: object) -> Event | None:
    """Asked by a job's own workflow, which names the submission, or by a recovery, which names the incident."""
    return (_for_job if "submission" in event else _for_recovery)(event, context)
