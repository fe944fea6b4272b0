"""The keys in AWS's shared credentials file. The standard library's `configparser` takes a fifth of a MiB for good."""

from pathlib import Path

from nodeheal.agent.sigv4 import Credentials

_PROFILE = "default"
_MARKS = "=:"  # what may stand between a key and its value


class BadProfile(Exception):
    """The file holds no credentials. The message says where and why, and never what stands there: that is secret."""


def read_profile(path: Path) -> Credentials:
    """The keys of the file's profile `default`. Raises OSError and BadProfile."""
    try:
        keys = _keys_of(path.read_text(encoding="utf-8"))
        return Credentials(
            keys["aws_access_key_id"], keys["aws_secret_access_key"], keys.get("aws_session_token") or None
        )
    except KeyError as error:
        raise BadProfile(f"{path}: the profile {_PROFILE}, or its key {error}, is missing") from None
    except UnicodeDecodeError:
        raise BadProfile(f"{path}: is no credentials file: it is not UTF-8") from None
    except _BadLine as error:
        raise BadProfile(f"{path}: is no credentials file: line {error}") from None


class _BadLine(Exception):
    """Its number, and what is wrong with it."""


def _keys_of(text: str) -> dict[str, str]:
    """Of the one profile. What is indented deeper than the key before goes on with it, and is no key of ours."""
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
            raise _BadLine(f"{number} stands in no profile")
        if section == _PROFILE and key in keys:
            raise _BadLine(f"{number} says again what was said")
        if section == _PROFILE and value:
            keys[key] = value
        depth = indent
    return keys


def _split(words: str, number: int) -> tuple[str, str]:
    end = min((words.index(mark) for mark in _MARKS if mark in words), default=0)
    if not end:
        raise _BadLine(f"{number} is neither a profile nor a key and its value")
    return words[:end].strip().lower(), words[end + 1 :].strip()
