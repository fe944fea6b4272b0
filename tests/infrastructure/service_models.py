"""Holds what a template asks a service for against the service's own model, as botocore carries it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from sandbox.request_rules import of_model, service_model


@dataclass(frozen=True)
class Call:
    """The call that CloudFormation makes for a resource.

    A property goes into the member of the same name, in whatever case. `renamed`: those that go into another one.
    `apart`: those that do not stand in this call, because CloudFormation itself or another call takes them.
    """

    service: str
    operation: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()


def violations(call: Call, given: Mapping[str, Any]) -> list[str]:
    """Every reason for which the service would refuse a resource with these properties."""
    shape = service_model(call.service).operation_model(call.operation).input_shape
    assert isinstance(shape, StructureShape)
    left = {call.renamed.get(name, name): value for name, value in given.items() if name not in call.apart}
    unknown = [f"{call.operation}.{name}: the service knows no such member" for name in _unknown(shape, left)]
    return [*unknown, *of_model(shape, _shaped(shape, left), call.operation)]


def _unknown(shape: Shape, given: Any) -> Iterator[str]:
    if isinstance(shape, StructureShape):
        members = _members(shape)
        for name, value in given.items():
            if name.lower() not in members:
                yield name
            else:
                yield from (f"{name}.{inner}" for inner in _unknown(shape.members[members[name.lower()]], value))
    elif isinstance(shape, ListShape):
        yield from (inner for each in given for inner in _unknown(shape.member, each))


def _shaped(shape: Shape, given: Any) -> Any:
    """A property as the API takes it: members by their own names, numbers as numbers, documents as text."""
    if isinstance(shape, StructureShape):
        members = _members(shape)
        found = ((members[name.lower()], value) for name, value in given.items() if name.lower() in members)
        return {name: _shaped(shape.members[name], value) for name, value in found}
    if isinstance(shape, MapShape):
        return {key: _shaped(shape.value, value) for key, value in given.items()}
    if isinstance(shape, ListShape):
        return [_shaped(shape.member, each) for each in given]
    if shape.type_name in ("integer", "long", "float", "double"):
        return float(given)
    if shape.type_name in ("string", "blob") and not isinstance(given, str):
        return json.dumps(given, separators=(",", ":"))
    return given


def _members(shape: StructureShape) -> dict[str, str]:
    return {name.lower(): name for name in shape.members}
