"""What every command does the same way: print, refuse, read a policy."""

import json
import sys
from pathlib import Path
from typing import Never

import typer
from pydantic import ValidationError

from nodeheal.domain.policy import RecoveryPolicy

DEFAULT_POLICY = Path(__file__).resolve().parent.parent / "policies" / "default.json"
BAD_INPUT = 2


def say(text: str) -> None:
    """One line for people."""
    sys.stdout.write(f"{text}\n")


def say_json(value: object) -> None:
    """For programs."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def refuse(why: str) -> Never:
    """Say what is wrong with the input, and stop."""
    sys.stderr.write(f"{why}\n")
    raise typer.Exit(BAD_INPUT)


def complaints(where: str, error: ValidationError) -> str:
    """What is wrong with a document, a line for each field."""
    told = []
    for found in error.errors():
        field = ".".join(map(str, found["loc"])) or "document"
        told.append(f"{where}: {field}: {found['msg'].removeprefix('Value error, ')}")
    return "\n".join(told)


def read_text(file: Path) -> str:
    """The file's text; refused where it cannot be read."""
    try:
        return file.read_text("utf-8")
    except OSError as error:
        refuse(f"{file}: {error.strerror}")
    except UnicodeDecodeError:
        refuse(f"{file}: it is not UTF-8 text")


def read_policy(file: Path) -> RecoveryPolicy:
    """The policy document; refused with the field named where it is not valid."""
    try:
        return RecoveryPolicy.model_validate_json(read_text(file))
    except ValidationError as error:
        refuse(complaints(str(file), error))
