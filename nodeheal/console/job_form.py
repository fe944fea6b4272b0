"""The form of a job, made of the schema of its file: a new field of the schema stands in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from nodeheal.api.yaml_tree import YamlRefused, read_tree
from nodeheal.contract.job_spec import JobSpec

_NUMBERS = ("integer", "number")
_BOOLEANS = ("true", "false")
ABOVE = ("name", "pool", "nodes", "image", "command", "steps", "checkpoints.directory")  # the rest is folded


@dataclass(frozen=True)
class FormField:
    """A field of the form. `name`: dotted, as in messages. `kind`: number, text, choice, lines, pairs or yaml."""

    name: str
    label: str
    kind: str
    about: str
    value: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    is_above: bool = False


def fields_of(values: Mapping[str, Any]) -> list[FormField]:
    """Return the fields with what a job's file holds. What does not fit a field is shown as it is."""
    schema = _schema()
    return list(_fields(schema, schema["$defs"], values, ""))


@cache
def _schema() -> dict[str, Any]:
    return JobSpec.model_json_schema()


def _fields(schema: Mapping[str, Any], models: Mapping[str, Any], values: Any, prefix: str) -> Any:
    required = schema.get("required", ())
    for name, described in schema["properties"].items():
        about, body = described.get("description", ""), _resolved(described, models)
        value = values.get(name) if isinstance(values, Mapping) else None
        if "properties" in body:
            yield from _fields(body, models, value, f"{prefix}{name}.")
            continue
        kind, choices = _kind(body, models)
        default = described.get("default")
        yield FormField(
            f"{prefix}{name}",
            f"{prefix}{name}".replace("_", " ").replace(".", " "),
            kind,
            about or body.get("description", ""),
            _shown(value, kind),
            _shown(default, kind),
            choices,
            is_required=not prefix and name in required,
            is_above=f"{prefix}{name}" in ABOVE,
        )


def _resolved(described: Mapping[str, Any], models: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself: not the reference to it, and not the choice between it and nothing."""
    options = [option for option in described.get("anyOf", ()) if option.get("type") != "null"]
    inner = options[0] if options else described
    if "$ref" in inner:
        schema: Mapping[str, Any] = models[inner["$ref"].rpartition("/")[2]]
        return schema
    return inner


def _kind(body: Mapping[str, Any], models: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    if "enum" in body:
        return "choice", tuple(map(str, body["enum"]))
    if body.get("type") in _NUMBERS:
        return "number", ()
    if body.get("type") == "boolean":
        return "choice", _BOOLEANS
    if body.get("type") == "array":
        return ("yaml" if "properties" in _resolved(body["items"], models) else "lines"), ()
    return ("pairs" if body.get("type") == "object" else "text"), ()


def _shown(value: Any, kind: str) -> str:
    if value is None:
        return ""
    if kind == "lines" and isinstance(value, (list, tuple)):
        return "\n".join(map(str, value))
    if kind == "pairs" and isinstance(value, Mapping):
        return "\n".join(f"{name}={text}" for name, text in value.items())
    if kind == "yaml":
        return str(yaml.safe_dump(value, sort_keys=False)).strip() if value else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def text_of(form: Mapping[str, str], values: Mapping[str, Any] | None = None) -> str:
    """Return the job's file that a form describes: what was left empty, or at its default, is not in it. `values`: of
    the file so far; what no field is for stays.

    What is no number in a number's field stands there as it was typed, and the file's own check refuses it by name.
    """
    made: dict[str, Any] = {}
    for field in fields_of({}):
        given = form.get(field.name, "").strip()
        if given in ("", field.default):
            continue
        place = made
        *groups, name = field.name.split(".")
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = _parsed(given, field.kind)
    made |= {name: value for name, value in (values or {}).items() if name not in JobSpec.model_fields}
    return str(yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=100))


def _parsed(given: str, kind: str) -> Any:
    match kind:
        case "number":
            return _number(given)
        case "choice":
            return given == "true" if given in _BOOLEANS else given
        case "lines":
            return [line.strip() for line in given.splitlines() if line.strip()]
        case "pairs":
            return dict(line.strip().partition("=")[::2] for line in given.splitlines() if line.strip())
        case "yaml":
            try:
                return read_tree(given.encode()).value
            except YamlRefused:
                return given
    return given


def _number(given: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    return given
