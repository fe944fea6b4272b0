"""Implements task definitions and job logs in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeheal.contract import names
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.job import GangTask, Job
from nodeheal.domain.jobs.job_log import LogLine, LogLocation, LogPage
from nodeheal.domain.jobs.task_definition import Container, TaskDefinition


@dataclass
class MemoryTaskDefinitions:
    """Implements TaskDefinitions. `definitions` has the known ones, by requested name; `registered` counts
    registrations.
    """

    definitions: dict[str, TaskDefinition] = field(default_factory=dict)
    registered: list[JobSpec] = field(default_factory=list)
    task_roles: tuple[str, ...] = ()

    def find(self, name: str) -> TaskDefinition:
        if name not in self.definitions:
            raise NotFound(f"task_definition: there is no {name}")
        return self.definitions[name]

    def register(self, spec: JobSpec) -> TaskDefinition:
        if spec.task_role is not None and spec.task_role not in self.task_roles:
            raise ValueError(f"task_role: {spec.task_role} is not named in the setting task_role_arns")
        self.registered.append(spec)
        family = f"{names.JOB_FAMILY_PREFIX}{spec.name}"
        log = LogLocation(names.JOB_LOG_GROUP, spec.name)
        made = TaskDefinition(f"{family}:{len(self.registered)}", (Container(spec.container, spec.accelerators, log),))
        self.definitions[made.name] = made
        return made

    def shown(self, spec: JobSpec) -> dict[str, object]:
        return {"family": f"{names.JOB_FAMILY_PREFIX}{spec.name}", "image": spec.image}


@dataclass
class MemoryJobLogs:
    """Implements JobLogs. `streams` has the output, by stream."""

    definitions: MemoryTaskDefinitions = field(default_factory=MemoryTaskDefinitions)
    streams: dict[str, list[LogLine]] = field(default_factory=dict)

    def locate(self, job: Job) -> LogLocation:
        container = self.definitions.find(job.task_definition).container(job.container)
        if container is None or container.log is None:
            raise NotFound(f"{job.task_definition} does not store the output of {job.container} where it can be read")
        return container.log

    def stream(self, location: LogLocation, job: Job, task: GangTask) -> str:
        return f"{location.prefix}/{job.container}/{task.task_id.rpartition('/')[2]}"

    def read(self, location: LogLocation, stream: str, token: str = "") -> LogPage:
        lines = self.streams.get(stream)
        if lines is None:
            return LogPage((), token)
        start = int(token or 0)
        return LogPage(tuple(lines[start:]), str(len(lines)))

    def last(self, location: LogLocation, stream: str, lines: int) -> Sequence[LogLine]:
        return self.streams.get(stream, [])[-lines:]
