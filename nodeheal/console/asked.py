"""What an address asks for, checked."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from starlette.requests import Request

SINCE: Mapping[str, timedelta] = {f"{days}d": timedelta(days=days) for days in (1, 7, 30, 90)}


def chosen(word: str, known: Iterable[str], field: str) -> str:
    """Return the word, which must be a known one. Raises ValueError, which names the field."""
    words = list(known)
    if word not in words:
        raise ValueError(f"{field}: {word[:40]!r} is not one of {', '.join(words)}")
    return word


def pools_of(request: Request) -> list[str]:
    """Return the pools that the address names."""
    return [pool for pool in request.query_params.getlist("pool") if pool]
