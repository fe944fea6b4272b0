"""`nodeheal policy`: look at the policy document, change it, and see what a change would change."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError

from nodeheal.adapters.aws.policy_documents import Deployed
from nodeheal.cli.connect import channels, policy_documents
from nodeheal.cli.differ import Change, Treatment, changed_settings, changes
from nodeheal.cli.say import read_policy, read_text, refuse, say, say_json
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.humanize import counted
from nodeheal.domain.policy.policy import PolicyRefused, parse_policy
from nodeheal.domain.policy.policy_lint import lint_policy
from nodeheal.services.operators.validate_policy import complaints_of_channels

app = typer.Typer(no_args_is_help=True, help="The policy document: what nodeheal may do, where, and how often.")

File = Annotated[Path, typer.Argument(help="a policy document, JSON")]
Why = Annotated[str, typer.Option(help="kept with the deployment")]
AsJson = Annotated[bool, typer.Option("--json", help="for programs")]
FAILED = 1
SHOWN = 8  # faults of one kind of change


@app.command()
def check(
    file: File,
    strict: Annotated[bool, typer.Option("--strict", help="a warning fails the check")] = False,
    deployed: Annotated[
        bool, typer.Option("--deployed", help="ask the deployed stack too, whether it has the channels")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether a policy document is valid; if not, name the field. Warn of what it can hardly mean."""
    document = read_policy(file)
    if deployed:
        with _clearly():
            missing = "; ".join(complaints_of_channels(document, channels()))
        if missing:
            refuse(f"{file}: {missing}")
    warnings = list(lint_policy(document))
    if as_json:
        say_json({"file": str(file), "is_valid": True, "version": document.version, "warnings": warnings})
    else:
        say(f"{file}: valid, version {document.version}")
        _warn(warnings)
    if strict and warnings:
        raise typer.Exit(FAILED)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        say(f"warning: {warning}")


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="a policy document")],
    new: Annotated[Path, typer.Argument(help="the one that would replace it")],
    as_json: AsJson = False,
) -> None:
    """Which faults would be treated differently, and which settings differ."""
    before, after = read_policy(old), read_policy(new)
    turned, treated = list(changed_settings(before, after)), list(changes(before, after))
    if as_json:
        answer = {
            "versions": [before.version, after.version],
            "knobs": [{"knob": where, "before": a, "after": b} for where, a, b in turned],
            "faults": [
                {
                    "fault": change.fault,
                    "name": change.name,
                    "pool": change.pool,
                    "before": vars(change.before),
                    "after": vars(change.after),
                }
                for change in treated
            ],
        }
        say_json(answer)
        return
    say(f"{old} is version {before.version}, {new} is version {after.version}")
    say("", f"{counted(len(turned), 'setting differs', 'settings differ')}" + (":" if turned else ""))
    for where, a, b in turned:
        say(f"  {where}: {json.dumps(a)} -> {json.dumps(b)}")
    say("", "Limits, budgets and windows are compared as settings only: `nodeheal replay` shows what they change.")
    say("", f"{counted(len(treated), 'fault')} would be treated differently" + (":" if treated else ""))
    for line in _grouped(treated):
        say(line)


def _grouped(treated: list[Change]) -> Iterator[str]:
    """Faults that change in the same way stand together."""
    groups: dict[tuple[str, Treatment, Treatment], list[Change]] = {}
    for change in treated:
        groups.setdefault((change.pool, change.before, change.after), []).append(change)
    for (pool, before, after), changed in sorted(groups.items(), key=lambda group: -len(group[1])):
        yield f"  pool {pool}, {counted(len(changed), 'fault')}"
        yield f"    before  {before}"
        yield f"    after   {after}"
        names = [f"{change.fault} ({change.name})" for change in changed[:SHOWN]]
        more = f", and {len(changed) - SHOWN} more (--json has them all)" if len(changed) > SHOWN else ""
        yield f"    faults  {', '.join(names)}{more}"


@app.command()
def show(as_json: AsJson = False) -> None:
    """The document that is in force, as it was applied. Its version, its time and its reason are on stderr."""
    with _clearly():
        deployed = policy_documents().in_force()
    if as_json:
        say_json({**_told(deployed), "document": _document(deployed.text)})
        return
    about = f"# version {_version(deployed)}, AppConfig version {deployed.version}, since {deployed.at}: {deployed.why}"
    say(about, aside=True)
    say(deployed.text)


@app.command()
def apply(file: File, why: Why, as_json: AsJson = False) -> None:
    """Put a document into force, for every function, within a minute."""
    warnings = list(lint_policy(read_policy(file)))
    if not as_json:
        _warn(warnings)
    with _clearly():
        deployed = policy_documents().apply(read_text(file), why)
    _say_deployed(deployed, as_json)


@app.command()
def rollback(why: Why, as_json: AsJson = False) -> None:
    """Put the document before the present one into force again; once more goes back further."""
    with _clearly():
        deployed = policy_documents().roll_back(why)
    _say_deployed(deployed, as_json)


def _say_deployed(deployed: Deployed, as_json: bool) -> None:
    if as_json:
        say_json(_told(deployed))
        return
    say(f"in force: policy version {_version(deployed)} (AppConfig version {deployed.version})")
    say("functions that run already take it up within a minute")


def _told(deployed: Deployed) -> dict[str, object]:
    return {
        "version": _version(deployed),
        "appconfig_version": deployed.version,
        "deployment": deployed.deployment,
        "at": deployed.at,
        "why": deployed.why,
    }


def _document(text: str) -> object:
    """The document as JSON; as text where it is none: what is in force can be looked at whatever it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _version(deployed: Deployed) -> str:
    try:
        return parse_policy(deployed.text).version
    except PolicyRefused as refused:
        return f"not valid ({refused.complaints[0]})"


@contextmanager
def _clearly() -> Iterator[None]:
    """AWS's complaints in one line."""
    try:
        yield
    except (NodehealError, ClientError, BotoCoreError) as error:
        refuse(f"nodeheal policy: {error}")
