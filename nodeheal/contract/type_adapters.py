"""Builds pydantic's adapter of a type when it is first used: building one costs more than using it."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter

_built = cache(TypeAdapter)


def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return the one adapter of a type, which may be a union. Raises PydanticUserError for a type that has none."""
    return _built(kind)
