"""Reads JSON that others have written."""

import json
from collections.abc import Callable
from typing import Any


def read_json(text: str | bytes, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the parsed JSON. Raises ValueError for any text that has none, however deeply it is nested."""
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
