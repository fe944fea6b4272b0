"""`nodeheal contexts`: the deployments that one person works with, kept in a file by name."""

import re
from typing import Annotated

import typer

from nodeheal.cli import kept_contexts
from nodeheal.cli.say import complaints, refuse, say
from nodeheal.cli.settings import context_file as file
from nodeheal.cli.table import say_table
from nodeheal.contract import names

app = typer.Typer(no_args_is_help=True, help="Deployments by name: which account, Region and table a command means.")

Name = Annotated[str, typer.Argument(metavar="CONTEXT", help="the context's name")]


_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@app.command("list")
def list_contexts() -> None:
    """Show every context, and which one is current."""
    store = kept_contexts.read()
    if not store.contexts:
        say(f"no context in {file()}: profile, Region and table come from the environment")
        return
    rows = [
        ("*" if name == store.current else "", name, it.profile or "-", it.region or "-", it.account or "-", it.table)
        for name, it in sorted(store.contexts.items())
    ]
    say_table(("", "CONTEXT", "PROFILE", "REGION", "ACCOUNT", "TABLE"), rows)


@app.command()
def use(name: Name) -> None:
    """Make a context the current one."""
    store = kept_contexts.read()
    kept_contexts.named(name, store)
    kept_contexts.write(store.model_copy(update={"current": name}))
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
    from pydantic import ValidationError

    store = kept_contexts.read()
    if not _NAME.fullmatch(name):
        refuse(f"{name!r} is not a name for a context; give letters, digits and . _ -, at most 64")
    before = store.contexts.get(name, kept_contexts.Context()).model_dump()
    given = {"profile": profile, "region": region, "account": account, "table": table}
    try:
        context = kept_contexts.Context.model_validate(
            {**before, **{key: value for key, value in given.items() if value}}
        )
    except ValidationError as error:
        refuse(*complaints(f"nodeheal contexts set {name}", error, kept_contexts.Context))
    contexts = {**store.contexts, name: context}
    kept_contexts.write(kept_contexts.Contexts(current=store.current or name, contexts=contexts))
    say(f"context {name} is kept in {file()}")


@app.command()
def delete(name: Name) -> None:
    """Forget a context. Nothing in AWS changes."""
    store = kept_contexts.read()
    kept_contexts.named(name, store)
    current = None if store.current == name else store.current
    contexts = {other: it for other, it in store.contexts.items() if other != name}
    kept_contexts.write(kept_contexts.Contexts(current=current, contexts=contexts))
    say(f"context {name} is forgotten")
