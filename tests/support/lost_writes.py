"""Writes that are lost on their way."""

from typing import Any


def _lost(*_: object) -> bool:
    """A conditional write that somebody else always wins."""
    return False


lost: Any = _lost


def lost_call(*_: object, **__: object) -> None:
    raise ConnectionError("the call is lost")
