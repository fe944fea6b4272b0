"""job.yaml: read, and refused with the line and the field of everything that is wrong."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from nodeheal.cli.say import refuse
from nodeheal.cli.yaml_tree import Tree, YamlRefused, read_tree
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.jobs.owner import parse_owner
from nodeheal.domain.policy.policy import perhaps
from nodeheal.parsers.sbatch import is_batch_script

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

_NAME = "lower-case letters, digits and '-' are taken, at most 63, and no '-' at either end"
_DEVICE = "a path below /dev is taken, of letters, digits and . _ / -"
_VARIABLE = "letters, digits, '_', '.' and '-' are taken, and no digit first"


@dataclass(frozen=True, order=True)
class Complaint:
    """What is wrong in which line; `field` is empty where it is the whole file."""

    line: int
    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {self.why}" if self.field else self.why


class JobFileRefused(ValueError):
    """Everything that was found wrong, in the order of the file."""

    def __init__(self, complaints: list[Complaint]) -> None:
        super().__init__("; ".join(map(str, complaints)))
        # A file may hold anything: nothing of it reaches a terminal as a command, nor a pipe as half a character.
        self.complaints = sorted(Complaint(one.line, _plain(one.field), _plain(one.why)) for one in complaints)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def parse_job_file(raw: bytes) -> JobSpec:
    """The job. Raises JobFileRefused, for any bytes that are none."""
    try:
        tree = read_tree(raw)
    except YamlRefused as refused:
        raise JobFileRefused([Complaint(refused.line, "", str(refused))]) from None
    try:
        # As JSON, and strictly: `nodes: yes` is no number, and "8" is text.
        spec = JobSpec.model_validate_json(json.dumps(tree.value), strict=True)
    except ValidationError as error:
        raise JobFileRefused([_complaint(one, tree) for one in error.errors()]) from None
    if wrong := list(_beyond_the_model(spec, tree)):
        raise JobFileRefused(wrong)
    return spec


def read_job_file(file: Path) -> JobSpec:
    """The file's job; refused with a line for each complaint."""
    raw = bytes_of(file)
    try:
        return parse_job_file(raw)
    except JobFileRefused as refused:
        if is_batch_script(raw):
            refuse(f"{file}: it is a batch script; with --slurm it is handed to sbatch")
        refuse(*(f"{file}:{one.line}: {one}" for one in refused.complaints))


def bytes_of(file: Path) -> bytes:
    """What the file holds; refused where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        refuse(f"{file}: {error.strerror}")


def _beyond_the_model(spec: JobSpec, tree: Tree) -> Iterator[Complaint]:
    if spec.owner is not None:
        try:
            parse_owner(spec.owner)
        except ValueError as error:
            yield Complaint(tree.line_of(("owner",)), "owner", str(error))


def _complaint(error: ErrorDetails, tree: Tree) -> Complaint:
    loc, said = tuple(error["loc"]), error["msg"].removeprefix("Value error, ")
    if not loc and (found := re.match(r"(\w+): (.*)", said, re.DOTALL)) and found[1] in JobSpec.model_fields:
        return Complaint(tree.line_of((found[1],)), found[1], found[2])
    # An error of a key has the key's own place after it.
    field = ".".join(str(part) for part in loc if part != "[key]")
    return Complaint(tree.line_of(loc), field, _words(error, loc, said))


def _words(error: ErrorDetails, loc: tuple[int | str, ...], said: str) -> str:
    match error["type"]:
        case "extra_forbidden":
            return f"there is no such field{_meant(loc)}"
        case "missing":
            return "is missing"
        case "string_pattern_mismatch":
            taken = _DEVICE if "devices" in loc else _VARIABLE if "[key]" in loc else _NAME
            return f"{_shown(error['input'])} does not fit; {taken}"
        case "string_type" if isinstance(error["input"], bool | int | float):
            return f"text is wanted; put it in quotes: {json.dumps(str(error['input']))}"
        case "int_type" | "int_from_float" | "float_type" | "bool_type" | "tuple_type" | "dict_type" | "model_type":
            return f"{said}, and not {_shown(error['input'])}{_level_meant(error, loc)}"
        case "model_attributes_type" | "json_invalid":
            return "an object of fields is wanted" if error["type"] != "json_invalid" else said
    return said + perhaps(error)


def _level_meant(error: ErrorDetails, loc: tuple[int | str, ...]) -> str:
    """`preflight: off`, or `preflight: 2`, as people write it."""
    if loc != ("preflight",) or not (isinstance(error["input"], int) or error["input"] == "off"):
        return ""
    return f"; did you mean `preflight: {{level: {0 if error['input'] == 'off' else int(error['input'])}}}`?"


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)[:60]


def _meant(loc: tuple[int | str, ...]) -> str:
    """The field that may have been meant."""
    known = _fields_at(loc[:-1])
    given = str(loc[-1])
    alias = _ALIASES.get(given)
    alike = [alias] if alias in known else get_close_matches(given.casefold(), known, n=1)
    return f"; did you mean `{alike[0]}`?" if alike else f"; there are {', '.join(known)}"


def _fields_at(loc: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = JobSpec
    for part in loc:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
