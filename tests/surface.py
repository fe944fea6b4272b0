"""The public surface: what people, scripts, agents and running executions hold on to.

    python -m tests.surface     # write tests/golden/surface.txt again, after a change that is meant

One line for each thing, so that a change shows as lines in a diff. Three other records hold the rest: event types, keys
of the table, documents and tags are in tests/golden/in_flight, acts by fault in tests/golden/fault_actions.csv, and
permissions in tests/golden/iam_matrix.csv.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from nodeheal.cli.main import app
from stacks.settings import REPOSITORY

RECORD = Path(__file__).parent / "golden" / "surface.txt"
SCHEMAS = REPOSITORY / "nodeheal" / "contract" / "schemas"
POLICY = REPOSITORY / "docs" / "reference" / "policy.schema.json"


def surface() -> list[str]:
    """Every line, sorted."""
    return sorted([*_commands(), *_schemas()])


def _commands() -> Iterator[str]:
    """Each command with its arguments and options."""
    yield from _of(typer.main.get_command(app), "nodeheal")


def _of(command: Any, path: str) -> Iterator[str]:  # Typer brings a Click of its own, whose types are private
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _of(inner, f"{path} {name}")
        return
    yield f"command: {path}"
    for one in command.params:
        kind = one.param_type_name
        spelled = "/".join([*one.opts, *one.secondary_opts]) if kind == "option" else one.name
        yield f"command: {path}: {kind} {spelled}{' (required)' if one.required else ''}"


def _schemas() -> Iterator[str]:
    """Each field of each schema, with whether it must be given."""
    for path in (*sorted(SCHEMAS.glob("*.json")), POLICY):
        yield from _fields(json.loads(path.read_text("utf-8")), f"schema: {path.stem}")


def _fields(schema: Any, place: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for name, inner in schema.get("properties", {}).items():
        must = " (required)" if name in schema.get("required", ()) else ""
        yield f"{place}.{name}{must}: {_kind(inner)}"
        yield from _fields(inner, f"{place}.{name}")
    for name, inner in schema.get("$defs", {}).items():
        words = f": {' | '.join(map(str, inner['enum']))}" if "enum" in inner else ""
        if words:
            yield f"{place} {name}{words}"
        yield from _fields(inner, f"{place} {name}")


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(_kind(one) for one in schema["anyOf"])
    return str(schema.get("type", schema.get("const", "any")))


def main() -> int:
    """Write the record."""
    RECORD.write_text("\n".join(surface()) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
