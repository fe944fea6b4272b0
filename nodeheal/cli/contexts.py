"""`nodeheal contexts`: the deployments that one person works with, kept in a file by name."""

import os
import re
from typing import Annotated

import typer
import yaml
from pydantic import Field, ValidationError

from nodeheal.cli.say import complaints, read_text, refuse, say
from nodeheal.cli.settings import ENV_ACCOUNT
from nodeheal.cli.settings import context_file as file
from nodeheal.cli.table import say_table
from nodeheal.contract import names
from nodeheal.contract.health_event import Frozen

app = typer.Typer(no_args_is_help=True, help="Deployments by name: which account, Region and table a command means.")

Name = Annotated[str, typer.Argument(metavar="CONTEXT", help="the context's name")]


_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Context(Frozen):
    """One deployment. What is not given here is taken from the environment, as the AWS CLI does."""

    profile: str | None = None
    region: str | None = Field(default=None, pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")
    table: str = names.TABLE
    account: str | None = Field(default=None, pattern=r"^[0-9]{12}$")


class Contexts(Frozen):
    """What the file holds."""

    current: str | None = None
    contexts: dict[str, Context] = Field(default_factory=dict)


def read() -> Contexts:
    """The contexts of the file; none where there is no file. Refused where it cannot be read."""
    path = file()
    if not path.exists():
        return Contexts()
    try:
        return Contexts.model_validate(yaml.safe_load(read_text(path)) or {})
    except yaml.YAMLError as error:
        refuse(f"{path}: it is not YAML: {' '.join(str(error).split())}")
    except ValidationError as error:
        refuse(*complaints(str(path), error))


def apply(asked: str | None) -> None:
    """Set profile, Region and table for this process.

    A context that is asked for by name (`--context`, NODEHEAL_CONTEXT) wins over variables of the environment. The
    current one of the file does not.
    """
    found = read() if asked or file().exists() else Contexts()
    name = asked or found.current
    if name is None:
        return
    context = _named(name, found)
    told = {"AWS_PROFILE": context.profile, "AWS_REGION": context.region, names.ENV_TABLE: context.table}
    for variable, value in {**told, ENV_ACCOUNT: context.account}.items():
        if value and (asked or not os.environ.get(variable)):
            os.environ[variable] = value


def _named(name: str, found: Contexts) -> Context:
    if name not in found.contexts:
        known = ", ".join(sorted(found.contexts)) or "none yet"
        refuse(f"no context {name} in {file()}; known: {known}. `nodeheal contexts set {name} …` makes it")
    return found.contexts[name]


def _write(found: Contexts) -> None:
    path = file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(found.model_dump(mode="json", exclude_none=True), sort_keys=False), "utf-8")
    except OSError as error:
        refuse(f"{path}: {error.strerror}")


@app.command("list")
def list_contexts() -> None:
    """Show every context, and which one is current."""
    found = read()
    if not found.contexts:
        say(f"no context in {file()}: profile, Region and table come from the environment")
        return
    rows = [
        ("*" if name == found.current else "", name, it.profile or "-", it.region or "-", it.account or "-", it.table)
        for name, it in sorted(found.contexts.items())
    ]
    say_table(("", "CONTEXT", "PROFILE", "REGION", "ACCOUNT", "TABLE"), rows)


@app.command()
def use(name: Name) -> None:
    """Make a context the current one."""
    found = read()
    _named(name, found)
    _write(found.model_copy(update={"current": name}))
    say(f"the current context is {name}")


@app.command("set")
def set_context(
    name: Name,
    profile: Annotated[str | None, typer.Option(help="the AWS profile")] = None,
    region: Annotated[str | None, typer.Option(help="the AWS Region, such as eu-central-1")] = None,
    account: Annotated[
        str | None, typer.Option(help="12 digits: with credentials of another account nothing is asked or done")
    ] = None,
    table: Annotated[str | None, typer.Option(help=f"the state table; {names.TABLE} by default")] = None,
) -> None:
    """Make a context, or change what is given. The first one becomes the current one."""
    found = read()
    if not _NAME.fullmatch(name):
        refuse(f"{name!r} is not a name for a context; give letters, digits and . _ -, at most 64")
    before = found.contexts.get(name, Context()).model_dump()
    given = {"profile": profile, "region": region, "account": account, "table": table}
    try:
        context = Context.model_validate({**before, **{key: value for key, value in given.items() if value}})
    except ValidationError as error:
        refuse(*complaints(f"nodeheal contexts set {name}", error))
    contexts = {**found.contexts, name: context}
    _write(Contexts(current=found.current or name, contexts=contexts))
    say(f"context {name} is kept in {file()}")


@app.command()
def delete(name: Name) -> None:
    """Forget a context. Nothing in AWS changes."""
    found = read()
    _named(name, found)
    current = None if found.current == name else found.current
    contexts = {other: it for other, it in found.contexts.items() if other != name}
    _write(Contexts(current=current, contexts=contexts))
    say(f"context {name} is forgotten")
