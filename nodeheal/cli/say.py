"""What every command does the same way: print, refuse, read a policy."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Never, TypeVar

import typer

from nodeheal.api import pages
from nodeheal.contract.json_text import read_json
from nodeheal.domain import complaints as domain_complaints
from nodeheal.domain.humanize import lasting
from nodeheal.domain.policy import policy

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


DEFAULT_POLICY = Path(__file__).resolve().parent.parent / "policies" / "default.json"
BAD_INPUT = 2
LONGEST_LABEL = 20  # characters before two blanks
RowT = TypeVar("RowT", bound="BaseModel")


def clean(text: str) -> str:
    """The text on one line. What a node or a job has said may hold anything: nothing of it reaches the terminal as a
    command, turns the direction of the line, or looks like a line of ours.
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def say(*lines: str, aside: bool = False, is_wrapped: bool = True) -> None:
    """For people. `aside`: on stderr, where stdout is to go into a file as it is.

    On a terminal a long line is wrapped between words, and hangs below its label. `is_wrapped` False: never.
    """
    stream = sys.stderr if aside else sys.stdout
    width = get_terminal_size().columns if is_wrapped and stream.isatty() else 0
    for line in lines:
        for part in wrapped(clean(line), width):
            stream.write(f"{part}\n")


def wrapped(line: str, width: int) -> list[str]:
    """The line in parts that fit; whole where `width` is 0 or it fits. Words, addresses among them, stay whole."""
    if not 0 < width < len(line):
        return [line]
    text = line.lstrip(" ")
    label, gap, rest = text.partition("  ")
    has_label = gap and len(label) <= LONGEST_LABEL
    below = len(line) - len(rest.lstrip(" ")) if has_label else len(line) - len(text) + 2
    hang = min(below, width // 3)
    return wrap(line, width, subsequent_indent=" " * hang, break_on_hyphens=False, break_long_words=False)


def say_json(view: "BaseModel | Sequence[BaseModel]", *, indent: int | None = 2) -> None:
    """For programs. `indent` None: on one line."""
    sys.stdout.write(json.dumps(_data_of(view), indent=indent) + "\n")


def _data_of(view: "BaseModel | Sequence[BaseModel]") -> object:
    if isinstance(view, Sequence):
        return [row.model_dump(mode="json") for row in view]
    return view.model_dump(mode="json")


class Form(StrEnum):
    """How a list, or one thing of it, is written."""

    wide = "wide"
    json = "json"
    yaml = "yaml"


Output = Annotated[Form | None, typer.Option("--output", "-o", help="wide: nothing is cut; json, yaml: for programs")]


Limit = Annotated[
    int | None, typer.Option("--limit", min=1, show_default=False, help="at most so many; without it 500 on a terminal")
]
After = Annotated[
    str, typer.Option("--after", metavar="CURSOR", show_default=False, help="go on where the list before ended")
]
ON_A_TERMINAL = 500  # rows, where no limit is given: a screen is for looking


def page_of(limit: int | None, after: str, form: Form | None) -> "pages.Page":
    """The part of a list that is asked for. What goes to a program, or into a pipe or a file, is whole by default."""
    is_looked_at = form not in (Form.json, Form.yaml) and sys.stdout.isatty()
    return pages.Page(ON_A_TERMINAL if limit is None and is_looked_at else limit, after)


def say_rows(view: "pages.Rows[RowT]", page: "pages.Page", form: Form) -> None:
    """A list for programs: where a part of it is asked for, the view with the next part's cursor; else its rows."""
    say_data(view if page.is_part else view.rows, form)


def say_more(cursor: str | None) -> None:
    """How the rest of a list is seen, for people."""
    if cursor is not None:
        say(f"There are more: the same command with --after {cursor}", is_wrapped=False)


def form_of(output: Form | None, as_json: bool) -> Form | None:
    """The form that is asked for: `--json` is short for `-o json`. None: for people, as wide as the terminal."""
    return Form.json if as_json else output


def say_data(view: "BaseModel | Sequence[BaseModel]", form: Form) -> None:
    """For programs, as JSON or YAML."""
    if form is Form.yaml:
        import yaml

        sys.stdout.write(yaml.safe_dump(_data_of(view), sort_keys=False, allow_unicode=True))
    else:
        say_json(view)


def age(at: datetime | None, now: datetime) -> str:
    """How long ago. `-`: never."""
    return lasting(now - at, is_short=True) if at else "-"


def refuse(*why: str) -> Never:
    """Say what is wrong with the input, and stop."""
    say(*why, aside=True)
    raise typer.Exit(BAD_INPUT)


def complaints(where: str, error: "ValidationError", model: "type[BaseModel]") -> list[str]:
    """What is wrong with a document of the user's, a line for each field. `model`: of the whole document."""
    return [f"{where}: {complaint}" for complaint in domain_complaints.complaints_of(error, model, shows_values=True)]


def read_text(file: Path) -> str:
    """The file's text; refused where it cannot be read."""
    try:
        return file.read_text("utf-8")
    except OSError as error:
        refuse(f"{file}: {error.strerror}")
    except UnicodeDecodeError:
        refuse(f"{file}: it is not UTF-8 text")


def policy_text(file: Path) -> str:
    """The text of a policy document, also out of what `nodeheal policy show --json` prints. `-`: of stdin."""
    text = sys.stdin.read() if file == Path("-") else read_text(file)
    try:
        shown = read_json(text)
    except ValueError:
        return text  # whatever is wrong with it is told by who reads it
    is_wrapped = isinstance(shown, dict) and {"document", "appconfig_version"} <= shown.keys()
    return json.dumps(shown["document"], indent=2) if is_wrapped else text


def checked(text: str, named: str) -> "policy.RecoveryPolicy":
    """The policy document; refused with the field named where it is not valid."""
    try:
        return policy.parse_policy(text)
    except policy.PolicyRefused as refused:
        refuse(*(f"{named}: {complaint}" for complaint in refused.complaints))


def read_policy(file: Path) -> "policy.RecoveryPolicy":
    """The policy document of a file; refused where it cannot be read, or is not valid."""
    return checked(policy_text(file), str(file))
