"""What a job's tasks are started from, as far as a job can be wrong about it. ECS calls it a task definition."""

from dataclasses import dataclass
from difflib import get_close_matches

from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job_log import LogPlace


@dataclass(frozen=True)
class Container:
    """One container of a recipe."""

    name: str
    accelerators: int = 0  # that it takes on each node
    log: LogPlace | None = None  # None: its output goes elsewhere, or nowhere


@dataclass(frozen=True)
class Recipe:
    """One revision of a task definition. `name` is its ARN: what is started later is what was checked now."""

    name: str
    containers: tuple[Container, ...]
    has_host_network: bool = True

    def container(self, name: str) -> Container | None:
        """The container of this name."""
        return next((one for one in self.containers if one.name == name), None)


def misfits(spec: JobSpec, recipe: Recipe) -> list[str]:
    """Why the job cannot run from it, the field first."""
    names = [one.name for one in recipe.containers]
    container = recipe.container(spec.container)
    if container is None:
        alike = get_close_matches(spec.container, names, n=1)
        perhaps = f"; did you mean {alike[0]}?" if alike else ""
        return [f"container: {recipe.name} has no container {spec.container}, but {', '.join(names)}{perhaps}"]
    found = []
    if not recipe.has_host_network:
        found.append(f"task_definition: {recipe.name} must have the network mode host: ranks listen on their nodes")
    if spec.accelerators and container.accelerators and spec.accelerators != container.accelerators:
        takes = counted(container.accelerators, "accelerator")
        found.append(f"accelerators: {recipe.name} takes {takes} on each node, and the file says {spec.accelerators}")
    return found
