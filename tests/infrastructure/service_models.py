"""Holds what a template asks a service for against the service's own model, as botocore carries it.

botocore checks types, required members and lengths that are too small. A service refuses more: what is too long, what
its pattern does not match, and what no enum has.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.session import Session

# Java's classes of characters, which Python spells otherwise.
_CLASSES = {r"\p{L}": r"\w", r"\p{Z}": r"\s", r"\p{N}": r"\d", r"\p{Graph}": "!-~", r"\p{Print}": " -~"}


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
    shape = _input(call.service, call.operation)
    left = {call.renamed.get(name, name): value for name, value in given.items() if name not in call.apart}
    return list(_of_structure(shape, left, call.operation))


@cache
def _input(service: str, operation: str) -> StructureShape:
    shape = Session().get_service_model(service).operation_model(operation).input_shape
    assert isinstance(shape, StructureShape)
    return shape


def _of_structure(shape: StructureShape, given: Mapping[str, Any], where: str) -> Iterator[str]:
    members = {name.lower(): name for name in shape.members}
    for name, value in given.items():
        member = members.get(name.lower())
        if member is None:
            yield f"{where}.{name}: the service knows no such member"
        else:
            yield from _of(shape.members[member], value, f"{where}.{member}")


def _of(shape: Shape, value: Any, where: str) -> Iterator[str]:
    if isinstance(shape, StructureShape):
        yield from _of_structure(shape, value, where)
    elif isinstance(shape, MapShape):
        yield from _of_size(shape, len(value), where)
        for key, inner in value.items():
            yield from _of(shape.key, key, f"{where}.{key}")
            yield from _of(shape.value, inner, f"{where}.{key}")
    elif isinstance(shape, ListShape):
        yield from _of_size(shape, len(value), where)
        for number, inner in enumerate(value):
            yield from _of(shape.member, inner, f"{where}[{number}]")
    elif shape.type_name in ("string", "blob"):
        yield from _of_text(shape, value if isinstance(value, str) else _compact(value), where)
    elif shape.type_name in ("integer", "long", "float", "double"):
        yield from _of_size(shape, float(value), where)


def _of_text(shape: Shape, text: str, where: str) -> Iterator[str]:
    yield from _of_size(shape, len(text), where)
    pattern = str(shape.metadata.get("pattern", ""))
    for theirs, ours in _CLASSES.items():
        pattern = pattern.replace(theirs, ours)
    if pattern and not re.search(rf"\A(?:{pattern})\Z", text):
        yield f"{where}: {text[:80]!r} does not match {pattern}"
    allowed = shape.metadata.get("enum")
    if allowed and text not in allowed:
        yield f"{where}: {text[:80]!r} is none of {', '.join(allowed)}"


def _of_size(shape: Shape, size: float, where: str) -> Iterator[str]:
    smallest, largest = shape.metadata.get("min"), shape.metadata.get("max")
    if smallest is not None and size < smallest:
        yield f"{where}: {size:g} is less than {smallest}"
    if largest is not None and size > largest:
        yield f"{where}: {size:g} is more than {largest}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
