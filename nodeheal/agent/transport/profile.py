"""Reads the keys in AWS's shared credentials file. The standard library's `configparser` would use a fifth of a MiB
permanently.
"""

from pathlib import Path

from nodeheal.agent.transport.sigv4 import Credentials

_PROFILE = "default"
_MARKS = "=:"  # separators between a key and its value


class BadProfile(Exception):
    """The file contains no credentials. The message says where and why, and never quotes the file, which is secret."""


def read_profile(path: Path) -> Credentials:
    """Return the keys of the file's profile `default`. Raises OSError and BadProfile."""
    try:
        keys = _keys_of(path.read_text(encoding="utf-8"))
        return Credentials(
            keys["aws_access_key_id"], keys["aws_secret_access_key"], keys.get("aws_session_token") or None
        )
    except KeyError as error:
        raise BadProfile(f"{path}: the profile {_PROFILE}, or its key {error}, is missing") from None
    except UnicodeDecodeError:
        raise BadProfile(f"{path}: is not a credentials file: it is not UTF-8") from None
    except _BadLine as error:
        raise BadProfile(f"{path}: is not a credentials file: line {error}") from None


class _BadLine(Exception):
    """The number of an invalid line, and what is wrong with it."""


def _keys_of(text: str) -> dict[str, str]:
    """Parse the keys of one profile. A line indented deeper than its key continues that key, and is no key itself."""
    keys: dict[str, str] = {}
    section, depth = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        words, indent = line.strip(), len(line) - len(line.lstrip())
        if not words or words[0] in "#;" or (depth is not None and indent > depth):
            continue
        if words.startswith("[") and "]" in words:
            section, depth = words[1 : words.rindex("]")], None
            continue
        key, value = _split(words, number)
        if not section:
            raise _BadLine(f"{number} is in no profile")
        if section == _PROFILE and key in keys:
            raise _BadLine(f"{number} repeats a key or a profile")
        if section == _PROFILE and value:
            keys[key] = value
        depth = indent
    return keys


def _split(words: str, number: int) -> tuple[str, str]:
    end = min((words.index(mark) for mark in _MARKS if mark in words), default=0)
    if not end:
        raise _BadLine(f"{number} is neither a profile nor a key with its value")
    return words[:end].strip().lower(), words[end + 1 :].strip()
