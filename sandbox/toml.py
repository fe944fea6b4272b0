"""Writes TOML, which the standard library only reads."""

import json
from collections.abc import Mapping


def toml(document: Mapping[str, object]) -> str:
    """Write a document of texts, numbers, booleans, lists and tables, each on one line."""
    return "".join(f"{_text(key)} = {_value(value)}\n" for key, value in document.items())


def _value(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_text(str(key))} = {_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise TypeError(f"TOML cannot represent {value!r}")


def _text(text: str) -> str:
    """Write a text. TOML escapes like JSON, except for characters beyond 16 bits and for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
