"""Jobs as tests have them: on ECS, where nodeheal starts their ranks."""

from datetime import datetime
from functools import partial

from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.jobs.job import Job, job_of

ecs_job = partial(Job, scheduler=SchedulerKind.ECS)


def ecs_job_of(spec: JobSpec, cluster: str, task_definition: str, at: datetime) -> Job:
    """The job of a file."""
    return job_of(spec, cluster, task_definition, at, SchedulerKind.ECS)
