"""Checks values of the configuration. Each function raises ConfigError, which names the key and the allowed values."""

import re

from nodeheal.contract.words import WORD

WORD_CHARACTERS, LONG_CHARACTERS = 128, 4096


class ConfigError(Exception):
    """The configuration is not valid; the message names the file and the key."""


def checked(key: str, value: object, is_good: bool, expected: str) -> object:
    """Return the value if `is_good`. Raises ConfigError otherwise."""
    if not is_good:
        raise ConfigError(f"key {key!r} must be {expected}, not {value!r}")
    return value


def text(key: str, value: object, limit: int) -> str:
    """Check a text of one line with a bounded length."""
    is_text = isinstance(value, str) and 0 < len(value) <= limit and value.isprintable()
    return str(checked(key, value, is_text, f"text of 1 to {limit} printable characters"))


def path(key: str, value: object) -> str:
    """Check an absolute path: a service and a person's shell have different working folders."""
    content = text(key, value, LONG_CHARACTERS)
    return str(checked(key, value, content.startswith("/"), "an absolute path, which begins with /"))


def number(key: str, value: object, unit: str, least: float, most: float) -> float:
    """Check a number of this unit."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_good = is_number and least <= float(str(value)) <= most
    return float(str(checked(key, value, is_good, f"{unit}, {least:.12g} to {most:.12g}")))


def count(key: str, value: object, least: int, most: int) -> int:
    """Check a whole number."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    is_good = is_whole and least <= int(str(value)) <= most
    return int(str(checked(key, value, is_good, f"a whole number, {least} to {most}")))


def words(key: str, value: object) -> tuple[str, ...]:
    """Check a list of names; it may be empty."""
    is_list = isinstance(value, list) and all(isinstance(name, str) and name for name in value)
    checked(key, value, is_list, "a list of names")
    return tuple(value) if isinstance(value, list) else ()


def labels(key: str, value: object, most: int) -> dict[str, str]:
    """Check a table of short texts."""
    table = value if isinstance(value, dict) else {}
    entries = [word for pair in table.items() for word in pair]
    is_good = isinstance(value, dict) and len(table) <= most
    is_good = is_good and all(isinstance(entry, str) and re.fullmatch(WORD, entry) is not None for entry in entries)
    checked(key, value, is_good, f'a table of at most {most} texts, such as {{ rack = "r7", switch = "leaf-3" }}')
    return table


def is_address(url: str) -> bool:
    """Whether it is an HTTP address."""
    from urllib.parse import urlsplit  # imported here because a custom endpoint is rare

    try:
        address = urlsplit(url)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # an invalid port, an unclosed bracket
        return False
