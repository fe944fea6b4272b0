"""Jobs as tests have them: on ECS, where nodeheal starts their ranks."""

from datetime import datetime
from typing import Any

from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.jobs.job import Job, job_of

TRAINING = Cluster(SchedulerKind.ECS, "training")


def ecs_job(job_id: str, pool: str, cluster: str, *fields: Any, **more: Any) -> Job:
    """A job in the ECS cluster of this name."""
    return Job(job_id, pool, Cluster(SchedulerKind.ECS, cluster), *fields, **more)


def ecs_job_of(spec: JobSpec, cluster: str, task_definition: str, at: datetime) -> Job:
    """The job of a file."""
    return job_of(spec, Cluster(SchedulerKind.ECS, cluster), task_definition, at)
