"""The task definition of a job, as far as a job's file can contradict it."""

from dataclasses import dataclass
from difflib import get_close_matches

from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job_log import LogLocation


@dataclass(frozen=True)
class Container:
    """One container of a task definition."""

    name: str
    accelerators: int = 0  # that it takes on each node
    log: LogLocation | None = None  # None: its output goes elsewhere, or nowhere


@dataclass(frozen=True)
class TaskDefinition:
    """One revision of a task definition. `name` names it, so that what was checked is what is started."""

    name: str
    containers: tuple[Container, ...]
    has_host_network: bool = True

    def container(self, name: str) -> Container | None:
        """Returns the container of this name."""
        return next((container for container in self.containers if container.name == name), None)


def misfits(spec: JobSpec, definition: TaskDefinition) -> list[str]:
    """Returns why the job cannot run from it, the field first."""
    names = [container.name for container in definition.containers]
    container = definition.container(spec.container)
    if container is None:
        alike = get_close_matches(spec.container, names, n=1)
        perhaps = f"; did you mean {alike[0]}?" if alike else ""
        return [f"container: {definition.name} has no container {spec.container}, but {', '.join(names)}{perhaps}"]
    problems = []
    if not definition.has_host_network:
        problems.append(
            f"task_definition: {definition.name} must have the network mode host: ranks listen on their nodes"
        )
    if spec.accelerators and container.accelerators and spec.accelerators != container.accelerators:
        takes = counted(container.accelerators, "accelerator")
        problems.append(
            f"accelerators: {definition.name} takes {takes} on each node, and the file says {spec.accelerators}"
        )
    return problems
