"""Parses the operation and the parameters of an HTTP request, for the wire protocols of AWS's services.

botocore's service models define where each parameter is, so one parser serves every service.
"""

import base64
import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote

from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from sandbox.request_rules import service_model

Json = dict[str, Any]
Flat = Mapping[str, str]
_JSON_BODIES = ("application/json", "application/x-amz-json")


def read_request(
    service: str, method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, Any]
) -> tuple[OperationModel, Json] | None:
    """Return the operation and its parameters; None for a protocol that is not supported (S3's XML, CBOR).

    Raises ValueError for an invalid body.
    """
    model = service_model(service)
    named = headers.get("x-amz-target", "").rpartition(".")[2]
    if named:
        return (model.operation_model(named), json.loads(body or b"{}")) if named in model.operation_names else None
    match model.metadata["protocol"]:
        case "query" | "ec2":
            flat = flat_of(body)
            name = flat.get("Action", "")
            return (
                (model.operation_model(name), read_query(model, name, flat)) if name in model.operation_names else None
            )
        case "rest-json":
            return _read_rest(model, method, path, headers, body, query)
        case _:
            return None


# The query protocols -------------------------------------------------------------------------------------------------


def flat_of(body: bytes) -> Flat:
    """Return the form's fields by their flat names."""
    return {name: values[-1] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}


def read_query(model: ServiceModel, name: str, flat: Flat) -> Json:
    """Convert flat names to nested values, by the operation's shape."""
    shape = model.operation_model(name).input_shape
    found: Json = _Query(model.metadata["protocol"] == "ec2").read(shape, flat, "") if shape else {}
    return found


class _Query:
    def __init__(self, is_ec2: bool) -> None:
        self._is_ec2 = is_ec2

    def read(self, shape: Shape, flat: Flat, prefix: str) -> Any:
        if isinstance(shape, StructureShape):
            named = ((name, member, self._place(prefix, name, member)) for name, member in shape.members.items())
            there = ((name, member, place) for name, member, place in named if _is_there(flat, place))
            return {name: self.read(member, flat, place) for name, member, place in there}
        is_flat = self._is_ec2 or shape.serialization.get("flattened")
        if isinstance(shape, ListShape):
            place = prefix if is_flat else f"{prefix}.{shape.member.serialization.get('name', 'member')}"
            return [self.read(shape.member, flat, f"{place}.{n}") for n in _numbers(flat, place)]
        if isinstance(shape, MapShape):
            place = prefix if is_flat else f"{prefix}.entry"
            key, value = (part.serialization.get("name", name) for part, name in _pair(shape))
            entries = [f"{place}.{n}" for n in _numbers(flat, place)]
            return {flat[f"{one}.{key}"]: self.read(shape.value, flat, f"{one}.{value}") for one in entries}
        return _value(shape, flat[prefix])

    def _place(self, prefix: str, name: str, member: Shape) -> str:
        spelled = member.serialization.get("name", name)
        if self._is_ec2:
            spelled = member.serialization.get("queryName") or spelled[0].upper() + spelled[1:]
        return f"{prefix}.{spelled}" if prefix else spelled


def _pair(shape: MapShape) -> tuple[tuple[Shape, str], tuple[Shape, str]]:
    return (shape.key, "key"), (shape.value, "value")


def _is_there(flat: Flat, place: str) -> bool:
    return place in flat or any(name.startswith(f"{place}.") for name in flat)


def _numbers(flat: Flat, place: str) -> list[int]:
    found = {name[len(place) + 1 :].partition(".")[0] for name in flat if name.startswith(f"{place}.")}
    return sorted(int(number) for number in found if number.isdigit())


def _value(shape: Shape, text: str) -> Any:
    match shape.type_name:
        case "integer" | "long":
            return int(text)
        case "double" | "float":
            return float(text)
        case "boolean":
            return text == "true"
        case "timestamp":
            return datetime.fromisoformat(text)
        case "blob":
            return base64.b64decode(text)
        case _:
            return text


# REST with JSON ------------------------------------------------------------------------------------------------------


def _read_rest(
    model: ServiceModel, method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, Any]
) -> tuple[OperationModel, Json] | None:
    for name, wanted, pattern in _routes(model.service_name):
        found = pattern.fullmatch(path)
        if wanted == method and found:
            operation = model.operation_model(name)
            return operation, _rest_parameters(operation, found.groupdict(), headers, body, query)
    return None


@cache
def _routes(service: str) -> tuple[tuple[str, str, "re.Pattern[str]"], ...]:
    """Return (operation, method, pattern of the path), those with more fixed parts first."""
    model = service_model(service)
    found = [(name, model.operation_model(name).http) for name in model.operation_names]
    found.sort(key=lambda pair: pair[1]["requestUri"].count("{"))
    return tuple((name, http["method"], _pattern(http["requestUri"])) for name, http in found)


def _pattern(template: str) -> "re.Pattern[str]":
    parts = re.split(r"(\{[^}]+\})", template.partition("?")[0].rstrip("/"))
    told = [f"(?P<{part[1:-1].rstrip('+')}>[^/]+)" if part.startswith("{") else re.escape(part) for part in parts]
    return re.compile("".join(told) + "/?")


def _rest_parameters(
    operation: OperationModel,
    in_path: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    query: Mapping[str, Any],
) -> Json:
    shape = operation.input_shape
    if shape is None:
        return {}
    payload = shape.serialization.get("payload")
    is_json = headers.get("content-type", "application/json").startswith(_JSON_BODIES) and payload is None
    said = json.loads(body) if body and is_json else {}
    found: Json = {}
    for name, member in shape.members.items():
        spelled = member.serialization.get("name", name)
        match member.serialization.get("location"):
            case "uri":
                value: Any = _value(member, unquote(in_path[spelled])) if spelled in in_path else None
            case "querystring":
                given = query.get(spelled)
                value = given[-1] if isinstance(given, list) and member.type_name != "list" else given
                value = _value(member, value) if isinstance(value, str) else value
            case "header":
                value = headers.get(spelled.lower())
                value = _value(member, value) if value is not None else None
            case _:
                value = body if name == payload else said.get(spelled)
        if value is not None:
            found[name] = value
    return found
