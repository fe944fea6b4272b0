"""The file of contexts: which account, Region and table each name means."""

import os

import yaml
from pydantic import Field, ValidationError

from nodeheal.cli.say import complaints, read_text, refuse
from nodeheal.cli.settings import ENV_ACCOUNT
from nodeheal.cli.settings import context_file as file
from nodeheal.contract import names
from nodeheal.contract.health_event import Frozen


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
    """Returns the contexts of the file; none where there is no file.

    Ends the command with an error where it cannot be read.
    """
    path = file()
    if not path.exists():
        return Contexts()
    try:
        return Contexts.model_validate(yaml.safe_load(read_text(path)) or {})
    except (yaml.YAMLError, RecursionError) as error:
        refuse(f"{path}: it is not YAML: {' '.join(str(error).split())}")
    except ValidationError as error:
        refuse(*complaints(str(path), error, Contexts))


def apply(asked: str | None) -> None:
    """Set profile, Region and table for this process.

    A context that is asked for by name (`--context`, NODEHEAL_CONTEXT) wins over variables of the environment. The
    current one of the file does not.
    """
    store = read() if asked or file().exists() else Contexts()
    name = asked or store.current
    if name is None:
        return
    context = named(name, store)
    variables = {"AWS_PROFILE": context.profile, "AWS_REGION": context.region, names.ENV_TABLE: context.table}
    for variable, value in {**variables, ENV_ACCOUNT: context.account}.items():
        if value and (asked or not os.environ.get(variable)):
            os.environ[variable] = value


def named(name: str, store: Contexts) -> Context:
    """Returns the context of this name. Ends the command with an error where the file has none."""
    if name not in store.contexts:
        known = ", ".join(sorted(store.contexts)) or "none yet"
        refuse(f"no context {name} in {file()}; known: {known}. `nodeheal contexts set {name} …` makes it")
    return store.contexts[name]


def write(store: Contexts) -> None:
    """Keep these in the file. Ends the command with an error where it cannot be written."""
    path = file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(store.model_dump(mode="json", exclude_none=True), sort_keys=False), "utf-8")
    except OSError as error:
        refuse(f"{path}: {error.strerror}")
