"""Recipes and job logs in memory."""

from dataclasses import dataclass, field

from nodeheal.contract import names
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.job_log import LogLine, LogPlace, Page
from nodeheal.domain.jobs.task_definition import Container, TaskDefinition


@dataclass
class MemoryRecipes:
    """Recipes. `recipes` holds those that there are, by the name they are asked for; `registered` counts."""

    recipes: dict[str, TaskDefinition] = field(default_factory=dict)
    registered: list[JobSpec] = field(default_factory=list)

    def find(self, name: str) -> TaskDefinition:
        if name not in self.recipes:
            raise NotFound(f"task_definition: there is no {name}")
        return self.recipes[name]

    def register(self, spec: JobSpec) -> TaskDefinition:
        self.registered.append(spec)
        family = f"{names.JOB_FAMILY_PREFIX}{spec.name}"
        log = LogPlace(names.JOB_LOG_GROUP, spec.name)
        made = TaskDefinition(f"{family}:{len(self.registered)}", (Container(spec.container, spec.accelerators, log),))
        self.recipes[made.name] = made
        return made

    def shown(self, spec: JobSpec) -> dict[str, object]:
        return {"family": f"{names.JOB_FAMILY_PREFIX}{spec.name}", "image": spec.image}


@dataclass
class MemoryJobLogs:
    """JobLogs. `streams` holds what was written, by stream."""

    streams: dict[str, list[LogLine]] = field(default_factory=dict)

    def read(self, place: LogPlace, stream: str, token: str = "") -> Page:
        lines = self.streams.get(stream)
        if lines is None:
            return Page((), token)
        start = int(token or 0)
        return Page(tuple(lines[start:]), str(len(lines)))
