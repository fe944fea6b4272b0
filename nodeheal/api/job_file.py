"""job.yaml: read, and refused with the line and the field of everything that is wrong."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from nodeheal.api.yaml_tree import Tree, YamlRefused, read_tree
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.complaints import complaints_of
from nodeheal.domain.jobs.owner import parse_owner

# What else people call them.
_ALIASES = {
    "gpus": "accelerators",
    "gpus_per_node": "accelerators",
    "accelerators_per_node": "accelerators",
    "env": "environment",
    "num_nodes": "nodes",
    "checkpoint": "checkpoints",
    "volumes": "mounts",
    "email": "owner",
    "args": "command",
    "taskDefinition": "task_definition",
}


@dataclass(frozen=True, order=True)
class LineComplaint:
    """What is wrong in which line of the file; `field` is empty where it is the whole file."""

    line: int
    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {self.why}" if self.field else self.why


class JobFileRefused(ValueError):
    """Everything that was found wrong, in the order of the file."""

    def __init__(self, complaints: list[LineComplaint]) -> None:
        super().__init__("; ".join(map(str, complaints)))
        # A file may hold anything: nothing of it reaches a terminal as a command, nor a pipe as half a character.
        self.complaints = sorted(
            LineComplaint(complaint.line, _plain(complaint.field), _plain(complaint.why)) for complaint in complaints
        )


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def parse_job_file(raw: bytes) -> JobSpec:
    """The job. Raises JobFileRefused, for any bytes that are none."""
    try:
        tree = read_tree(raw)
    except YamlRefused as refused:
        raise JobFileRefused([LineComplaint(refused.line, "", str(refused))]) from None
    try:
        # As JSON, and strictly: `nodes: yes` is no number, and "8" is text.
        spec = JobSpec.model_validate_json(json.dumps(tree.value), strict=True)
    except ValidationError as error:
        raise JobFileRefused(list(_complaints(error, tree))) from None
    if wrong := list(_beyond_the_model(spec, tree)):
        raise JobFileRefused(wrong)
    return spec


def _beyond_the_model(spec: JobSpec, tree: Tree) -> Iterator[LineComplaint]:
    if spec.owner is not None:
        try:
            parse_owner(spec.owner)
        except ValueError as error:
            yield LineComplaint(tree.line_of(("owner",)), "owner", str(error))


def _complaints(error: ValidationError, tree: Tree) -> Iterator[LineComplaint]:
    """What the model refuses, each with its line."""
    complaints = complaints_of(error, JobSpec, shows_values=True, aliases=_ALIASES)
    for complaint, details in zip(complaints, error.errors(), strict=True):
        why = f"{complaint.why}{_level_meant(complaint.field, details['input'])}"
        yield LineComplaint(tree.line_of(complaint.place), complaint.field, why)


def _level_meant(field: str, given: object) -> str:
    """`preflight: off`, or `preflight: 2`, as people write it."""
    if field != "preflight" or not (isinstance(given, int) or given == "off"):
        return ""
    return f"; did you mean `preflight: {{level: {0 if given == 'off' else int(given)}}}`?"
