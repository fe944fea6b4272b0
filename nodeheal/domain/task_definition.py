"""What a job's tasks are started from, as far as a job can be wrong about it."""

from dataclasses import dataclass
from difflib import get_close_matches

from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.counted import counted


@dataclass(frozen=True)
class LogLocation:
    """Where the output of a container is kept: a group, and the beginning of its streams' names."""

    group: str
    prefix: str
    region: str = ""


@dataclass(frozen=True)
class Container:
    """One container of a task definition."""

    name: str
    accelerators: int = 0  # that it takes on each node
    log: LogLocation | None = None  # None: its output goes elsewhere, or nowhere


@dataclass(frozen=True)
class TaskDefinition:
    """One revision of a definition. `name` names the revision: what is started later is what was checked now."""

    name: str
    containers: tuple[Container, ...]
    has_host_network: bool = True

    def container(self, name: str) -> Container | None:
        """The container of this name."""
        return next((one for one in self.containers if one.name == name), None)


def misfits(spec: JobSpec, definition: TaskDefinition) -> list[str]:
    """Why the job cannot run from it, the field first."""
    names = [one.name for one in definition.containers]
    container = definition.container(spec.container)
    if container is None:
        alike = get_close_matches(spec.container, names, n=1)
        perhaps = f"; did you mean {alike[0]}?" if alike else ""
        return [f"container: {definition.name} has no container {spec.container}, but {', '.join(names)}{perhaps}"]
    found = []
    if not definition.has_host_network:
        found.append(f"task_definition: {definition.name} must have the network mode host: ranks listen on their nodes")
    if spec.accelerators and container.accelerators and spec.accelerators != container.accelerators:
        takes = counted(container.accelerators, "accelerator")
        found.append(
            f"accelerators: {definition.name} takes {takes} on each node, and the file says {spec.accelerators}"
        )
    return found
