"""Finds what AWS would refuse in a request, by botocore's service models and by a table of documented limits.

botocore checks types, required members and minimum values before it sends a request. It leaves maximum lengths,
patterns and enumerations to the service. An emulator that leaves them out, too, accepts what AWS refuses. Some limits
are in no model at all; `documented_limits.csv` has them, each with its source.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import regex
from botocore import validate
from botocore.exceptions import ParamValidationError
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

LIMITS = Path(__file__).with_name("documented_limits.csv")
# Shapes whose pattern the service does not enforce as in the model, each with the observation.
NOT_ENFORCED: dict[str, str] = {}
_SURROGATES = r"\uD800\uDC00-\uDBFF\uDFFF"
_SPOKEN = {
    "states": "stepfunctions",
    "monitoring": "cloudwatch",
    "servicequotas": "service-quotas",
}  # signing names that are no botocore service names


@dataclass(frozen=True)
class Limit:
    """One row of the table."""

    service: str
    operation: str
    member: tuple[str, ...]  # "[]" stands for every item of a list
    kind: str
    limit: str
    source: str


@cache
def service_model(name: str) -> ServiceModel:
    """Return botocore's description of a service, by its botocore or its signing name."""
    name = _SPOKEN.get(name, name)
    return ServiceModel(Loader().load_service_model(name, "service-2"), name)


@cache
def documented_limits() -> tuple[Limit, ...]:
    """Return the rows of the table. Raises KeyError for a kind that nothing checks."""
    with LIMITS.open(encoding="utf-8", newline="") as file:
        limits = tuple(
            Limit(service, operation, tuple(member.split(".")), kind, limit, source)
            for service, operation, member, kind, limit, source in list(csv.reader(file))[1:]
        )
    unknown = {row.kind for row in limits} - _KINDS.keys() - {"excludes"}
    if unknown:
        raise KeyError(f"{LIMITS.name}: unknown kinds {sorted(unknown)}")
    return limits


def complaints(service: str, operation: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return each reason for which AWS would refuse these parameters, as one line; empty if it would accept them."""
    model = service_model(service)
    shape = model.operation_model(operation).input_shape
    if shape is None:
        return []
    report = validate.ParamValidator().validate(parameters, shape)
    found = [report.generate_report()] if report.has_errors() else []
    return [*found, *of_model(shape, parameters, ""), *_of_table(model.service_name, operation, parameters)]


def refuse_in_this_process() -> Callable[[], object]:
    """Make every botocore client of this process refuse what AWS would; returns a function that undoes it."""
    original = validate.ParamValidationDecorator.serialize_to_request

    def checked(self: Any, parameters: Mapping[str, Any], operation_model: OperationModel) -> Any:
        found = complaints(operation_model.service_model.service_name, operation_model.name, parameters)
        if found:
            raise ParamValidationError(report="\n".join(found))
        return original(self, parameters, operation_model)

    patched = mock.patch.object(validate.ParamValidationDecorator, "serialize_to_request", checked)
    patched.start()
    return patched.stop


# By the model --------------------------------------------------------------------------------------------------------


def of_model(shape: Shape, value: Any, place: str) -> Iterator[str]:
    """Return each reason for which a service would refuse the value by its model: size, pattern, enumeration."""
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        for name, member in shape.members.items():
            if value.get(name) is not None:
                yield from of_model(member, value[name], f"{place}.{name}".lstrip("."))
    elif isinstance(shape, ListShape) and isinstance(value, list | tuple):
        yield from _outside(shape, len(value), place, "items")
        for each in value:
            yield from of_model(shape.member, each, f"{place}[]")
    elif isinstance(shape, MapShape) and isinstance(value, Mapping):
        yield from _outside(shape, len(value), place, "entries")
        for key, each in value.items():
            yield from of_model(shape.key, key, f"{place}.key")
            yield from of_model(shape.value, each, f"{place}.{key}")
    elif shape.type_name in ("string", "blob") and isinstance(value, str):
        yield from _outside(shape, len(value), place, "characters")
        yield from _unlike(shape, value, place)
    elif shape.type_name in ("integer", "long", "float", "double") and isinstance(value, int | float):
        yield from _outside(shape, value, place, "as its value")


def _outside(shape: Shape, size: float, place: str, unit: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        yield f"{place}: {size:g} {unit}, at least {least} ({shape.name})"
    if most is not None and size > most:
        yield f"{place}: {size:g} {unit}, at most {most} ({shape.name})"


def _unlike(shape: Shape, value: str, place: str) -> Iterator[str]:
    allowed = shape.metadata.get("enum")
    if allowed and value not in allowed:
        yield f"{place}: {value!r} is none of {', '.join(allowed)} ({shape.name})"
    pattern = shape.metadata.get("pattern")
    if pattern and shape.name not in NOT_ENFORCED and not _compiled(pattern).fullmatch(value):
        yield f"{place}: {value[:80]!r} does not match {pattern} ({shape.name})"


@cache
def _compiled(pattern: str) -> "regex.Pattern[str]":
    """Compile a model's pattern. They are Java's, which writes characters above U+FFFF as surrogate pairs."""
    return regex.compile(pattern.replace(_SURROGATES, r"\U00010000-\U0010FFFF"))


# By the table --------------------------------------------------------------------------------------------------------


def _of_table(service: str, operation: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    for row in documented_limits():
        if (row.service, row.operation) != (service, operation):
            continue
        for value in _values(parameters, row.member):
            why = _excluded(parameters, row) if row.kind == "excludes" else _KINDS[row.kind](value, row.limit)
            if why:
                yield f"{'.'.join(row.member)}: {why} ({row.source})"


def _values(value: Any, member: tuple[str, ...]) -> Iterator[Any]:
    if not member:
        yield value
    elif member[0] == "[]":
        for each in value:
            yield from _values(each, member[1:])
    elif isinstance(value, Mapping) and value.get(member[0]) is not None:
        yield from _values(value[member[0]], member[1:])


def _excluded(parameters: Mapping[str, Any], row: Limit) -> str:
    beside = sorted(parameters.keys() & set(row.limit.split()))
    return f"cannot be given with {', '.join(beside)}" if beside else ""


def _pattern(value: str, limit: str) -> str:
    return "" if _compiled(limit).fullmatch(value) else f"{value[:80]!r} does not match {limit}"


def _items(value: Any, limit: str) -> str:
    return _within(len(value), limit, "items")


def _value(value: int, limit: str) -> str:
    return _within(value, limit, "as its value")


def _within(size: int, limit: str, unit: str) -> str:
    least, most = (int(part) for part in limit.split(".."))
    return "" if least <= size <= most else f"{size} {unit}, {least} to {most} allowed"


def _size(measure: Callable[[Any], int], unit: str) -> Callable[[Any, str], str]:
    def check(value: Any, limit: str) -> str:
        size = measure(value)
        return f"{size} {unit}, at most {limit}" if size > int(limit) else ""

    return check


def _not_empty(value: Any, _: str) -> str:
    return "" if value else "is empty"


def _json_object(value: str, _: str) -> str:
    try:
        return "" if isinstance(json.loads(value), dict) else "is no JSON object"
    except ValueError:
        return "is no JSON"


def _statements(value: str, limit: str) -> str:
    try:
        found = json.loads(value).get("Statement", []) if value else []
    except (ValueError, AttributeError):
        return "is no JSON object"
    count = len(found) if isinstance(found, list) else 1
    return f"{count} statements, at most {limit}" if count > int(limit) else ""


def _no_empty_set(value: Mapping[str, Any], _: str) -> str:
    empty = [name for name, typed in value.items() if any(typed.get(kind) == [] for kind in ("SS", "NS", "BS"))]
    return f"{', '.join(empty)}: a set cannot be empty" if empty else ""


_KINDS: dict[str, Callable[[Any, str], str]] = {
    "pattern": _pattern,
    "items": _items,
    "value": _value,
    "length": _size(len, "characters"),
    "bytes": _size(lambda value: len(value.encode()), "bytes"),
    "json_characters": _size(lambda value: len(json.dumps(value, default=str)), "characters of JSON"),
    "json_object": _json_object,
    "not_empty": _not_empty,
    "statements": _statements,
    "no_empty_set": _no_empty_set,
}
