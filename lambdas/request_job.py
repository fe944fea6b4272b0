"""request_job: what a person asks of a job. See nodeheal/services/jobs/request_job.py.

A person calls it directly. The request is hostile until it is parsed.
"""

from pydantic import ValidationError

from lambdas.composition import Event, explain, is_ping, logger, policy, ports, records, task_definitions
from nodeheal.contract.job_acts import JobAct, JobAnswer, JobRefused, parse_job_act
from nodeheal.contract.vocabulary import JobRefusal
from nodeheal.domain.errors import NotAccepted
from nodeheal.services.jobs.request_job import request_job


def handler(event: Event, context: object) -> Event | None:
    """Answer with the job as recorded, or with a refusal."""
    if is_ping(event):
        return None
    answer = _answer(event)
    if isinstance(answer, JobRefused):
        logger().warning("job request refused", extra={"code": answer.code, "why": answer.text})
    else:
        logger().info("job request done", extra={"job": answer.name, "submission": answer.submission})
    return answer.model_dump(mode="json")


def _answer(event: Event) -> JobAnswer:
    try:
        act: JobAct = parse_job_act(event)
    except ValidationError as error:
        return JobRefused(code=JobRefusal.INVALID, text=explain(error))
    except ValueError as error:
        return JobRefused(code=JobRefusal.INVALID, text=str(error))
    try:
        records().must_be_whole(ports())
    except NotAccepted as error:
        return JobRefused(code=JobRefusal.NOT_NOW, text=str(error))
    return request_job(act, ports(), policy(), task_definitions)
