"""`nodeheal policy`: look at the policy document, change it, and see what a change would change."""

import json
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from nodeheal.adapters.aws.policy_documents import Deployed, PolicyDocuments, document_of
from nodeheal.api import policy_queries, policy_views
from nodeheal.cli import connect
from nodeheal.cli.connect import AsJson, Why, clearly
from nodeheal.cli.node_acts import DryRun, WhyOrDryRun, Yes, given_reason
from nodeheal.cli.say import (
    Form,
    Output,
    checked,
    form_of,
    policy_text,
    read_policy,
    read_text,
    refuse,
    say,
    say_data,
    say_json,
)
from nodeheal.contract.json_text import read_json
from nodeheal.domain.humanize import counted
from nodeheal.domain.policy import policy, policy_lint

app = typer.Typer(no_args_is_help=True, help="The policy document: what nodeheal may do, where, and how often.")

File = Annotated[Path, typer.Argument(help="a policy document, JSON; - reads it from stdin")]
FAILED = 1
LISTED_BY = "--dry-run --json"


@app.command()
def check(
    file: File,
    strict: Annotated[bool, typer.Option("--strict", help="a warning fails the check")] = False,
    deployed: Annotated[
        bool, typer.Option("--deployed", help="ask the deployed stack too, whether it has the channels")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a policy document: errors by field, and warnings about what is probably not meant."""
    document = read_policy(file)
    if deployed:
        with clearly():
            missing = "; ".join(policy_queries.complaints_of_channels(document, connect.channels()))
        if missing:
            refuse(f"{file}: {missing}")
    result = policy_views.PolicyCheck(
        file=str(file), is_valid=True, version=document.version, warnings=tuple(policy_lint.lint_policy(document))
    )
    if as_json:
        say_json(result)
    else:
        say(f"{file}: valid, version {document.version}")
        _warn(result.warnings)
    if strict and result.warnings:
        raise typer.Exit(FAILED)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        say(f"warning: {warning}")


Merge = Annotated[
    bool, typer.Option("--merge", help="the file changes only what it names; all else stays as it is in force")
]


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="a policy document")],
    new: Annotated[
        Path | None,
        typer.Argument(
            metavar="NEW", help="the document to compare OLD with; without NEW, OLD is compared with the one in force"
        ),
    ] = None,
    merge: Merge = False,
    as_json: AsJson = False,
) -> None:
    """Show which settings differ, a line each, and how many faults would be treated differently."""
    merged = None
    if new is None:
        with clearly():
            text = connect.policy_documents().in_force().text
        before, merged = policy.parse_policy(text), checked(_merged(text, policy_text(old), old), str(old))
        after = merged if merge else read_policy(old)
        names = ("the policy in force", str(old))
    else:
        if merge:
            refuse("--merge: not with two files; it compares one with the document in force")
        before, after, names = read_policy(old), read_policy(new), (str(old), str(new))
    view = policy_queries.diff(before, after)
    if as_json:
        say_json(view)
    else:
        _say_changes(view, names, listed_by="--json")
    if merged is not None:
        left_out = len(view.knobs) - len(policy_queries.changed_settings(before, merged))
        if left_out > 0:
            hint = f"{left_out} of these settings are not in {old}, and go back to their defaults: --merge keeps them"
            say(hint, aside=as_json)
        _note(after, aside=as_json)


def _say_changes(
    view: "policy_views.PolicyDiff", named: tuple[str, str], *, aside: bool = False, listed_by: str = LISTED_BY
) -> None:
    old, new = view.versions
    say(f"{named[0]} is version {old}, {named[1]} is version {new}", aside=aside)
    for change in view.knobs:
        say(f"  {change.knob}: {_value(change.before)} -> {_value(change.after)}", aside=aside)
    treated = {change.fault for change in view.faults}
    how = f"; {listed_by} lists them" if treated and listed_by else ""
    say(f"{counted(len(treated), 'fault')} would be treated differently{how}", aside=aside)


def _note(policy: "policy.RecoveryPolicy", *, aside: bool) -> None:
    """Say which pools of the document are not there: a name that was mistyped changes nothing."""
    say(*connect.notes_of_pools(policy_queries.named_pools(policy)), aside=aside)


def _value(value: object) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


@app.command()
def show(as_json: AsJson = False, output: Output = None) -> None:
    """Show the document in force. Its version, time and reason are on stderr.

    `apply`, `check` and `diff` take it as it is, and as JSON.
    """
    form = form_of(output, as_json)
    with clearly():
        deployed = connect.policy_documents().in_force()
    view = _view(deployed)
    if form in (Form.json, Form.yaml):
        say_data(policy_views.PolicyDocument(**dict(view), document=document_of(deployed.text)), form)
        return
    about = f"# version {view.version}, AppConfig version {view.appconfig_version}, since {_at(view)}: {view.why}"
    say(about, aside=True)
    say(*deployed.text.splitlines(), is_wrapped=False)


@app.command()
def apply(
    file: File,
    why: WhyOrDryRun = None,
    merge: Merge = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put a document into force, for every function, within a minute. It replaces the whole document.

    It shows what changes. On a terminal it asks; without one, nobody can answer, and the command is the answer.
    """
    reason, text = connect.on_record(given_reason(why, dry_run=dry_run)), policy_text(file)
    if not merge:
        checked(text, str(file))  # what is wrong is told before AWS is asked
    with clearly():
        documents = connect.policy_documents()
        before = documents.base()
    if merge:
        text = _merged(before.text, text, file)
    _put_into_force(documents, before, text, str(file), reason, dry_run=dry_run, yes=yes, as_json=as_json)


@app.command()
def edit(why: Why, yes: Yes = False) -> None:
    """Open the document in force in your editor (EDITOR), then put it into force as `apply` does."""
    reason = connect.on_record(why)
    with clearly():
        documents = connect.policy_documents()
        before = documents.base()
    shown = json.dumps(document_of(before.text), indent=2) + "\n"
    file = _edited(shown)
    edited = read_text(file)
    if edited == shown:
        file.unlink()
        say("nothing was changed")
        return
    # Where nobody is asked, nobody can look before it is in force.
    listed_by = f"`nodeheal policy diff {file} --json`" if not yes and _is_terminal() else ""
    try:
        _put_into_force(documents, before, edited, "the edited document", reason, yes=yes, listed_by=listed_by)
    except (typer.Exit, typer.Abort):
        say(f"your text is kept in {file}: mend it, then `nodeheal policy apply {file} --why …`", aside=True)
        raise
    file.unlink()


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _edited(text: str) -> Path:
    """A file with the text as the user's editor leaves it."""
    import shlex
    import subprocess
    from tempfile import NamedTemporaryFile

    named = next((name for name in ("VISUAL", "EDITOR") if os.environ.get(name)), "")
    editor = os.environ.get(named, "vi")
    with NamedTemporaryFile("w", prefix="nodeheal-policy-", suffix=".json", delete=False) as opened:
        opened.write(text)
    file, set_as = Path(opened.name), f"{named}={editor}" if named else f"{editor}, as neither VISUAL nor EDITOR is set"
    try:
        failed = subprocess.run([*shlex.split(editor), opened.name], check=False).returncode
    except (OSError, ValueError) as error:  # not there, not to be run, or a quotation mark without its second
        file.unlink()
        why = error.strerror if isinstance(error, OSError) else error
        refuse(f"your editor cannot be started ({set_as}): {why}; set EDITOR to one that is here, such as EDITOR=nano")
    if failed:
        has_changed = file.exists() and read_text(file) != text
        if not has_changed:
            file.unlink(missing_ok=True)
        kept = f"; your text is kept in {file}: `nodeheal policy apply {file} --why …` puts it into force"
        refuse(
            f"your editor ended with code {failed} ({set_as}): nothing was changed"
            f"{kept if has_changed else '; edit again, or set EDITOR to another one'}"
        )
    if not file.exists():
        refuse(f"your editor has deleted the file ({set_as}): nothing was changed; edit again")
    return file


def _merged(before: str, patch: str, file: Path) -> str:
    """The document with what the patch names, as RFC 7396 has it: null takes a setting back to its default."""
    target, wanted = document_of(before), _json_of(patch, file)
    if isinstance(target, dict) and isinstance(wanted, dict):
        # A pool that is not in the document goes by default_pool: what the patch does not name stays so.
        known, named = target.get("pools", {}), wanted.get("pools", {})
        new = [name for name in named if name not in known and isinstance(named[name], dict)] if named else []
        if new:
            target = {**target, "pools": {**known, **dict.fromkeys(new, target.get("default_pool", {}))}}
    return json.dumps(_patched(target, wanted), indent=2)


def _patched(target: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _patched(merged.get(key), value)
    return merged


def _json_of(text: str, file: Path) -> object:
    try:
        return read_json(text)
    except ValueError as error:
        refuse(f"{file}: it is not JSON: {error}")


def _put_into_force(
    documents: PolicyDocuments,
    before: Deployed,
    text: str,
    named: str,
    why: str,
    *,
    dry_run: bool = False,
    yes: bool = False,
    as_json: bool = False,
    listed_by: str = LISTED_BY,
) -> None:
    old, new = policy_queries.readable(before.text), checked(text, named)
    if before.is_same(text):
        if as_json:
            say_json(_view(before))
        else:
            say(f"policy version {new.version} is already in force, nothing was changed")
        return
    if not as_json:
        warnings, older = policy_queries.warnings(old, new)
        _warn(warnings)
        if older:
            say(f"{counted(older, 'warning')} as before: `nodeheal policy check FILE` lists those of a whole document")
    _note(new, aside=as_json)
    if not _goes_on(old, new, "the new one", dry_run=dry_run, yes=yes, as_json=as_json, listed_by=listed_by):
        return
    with clearly():
        deployed = documents.apply(text, why, before.version)
    _say_deployed(deployed, as_json)


def _goes_on(
    old: "policy.RecoveryPolicy",
    new: "policy.RecoveryPolicy",
    named: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    listed_by: str = LISTED_BY,
) -> bool:
    """Say what changes; on a terminal, ask. False: it is a dry run. Ends the command where the answer is no."""
    view = policy_queries.diff(old, new)
    if dry_run and as_json:
        say_json(view)
        return False
    _say_changes(view, ("the policy in force", named), aside=as_json, listed_by=listed_by)
    if dry_run:
        say("", "dry run: nothing was changed")
        return False
    if not yes and _is_terminal() and not typer.confirm(f"Put {named} into force?"):
        say("nothing was changed")
        raise typer.Exit(FAILED)
    return True


@app.command()
def rollback(why: WhyOrDryRun = None, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Put the last document that differs from the one in force into force again. Repeated, it goes back further."""
    reason = connect.on_record(given_reason(why, dry_run=dry_run))
    with clearly():
        documents = connect.policy_documents()
        before, (version, text) = documents.in_force(), documents.previous()
    old, new = policy_queries.readable(before.text), policy_queries.readable(text)
    if not _goes_on(old, new, "the previous one", dry_run=dry_run, yes=yes, as_json=as_json):
        return
    with clearly():
        deployed = documents.deploy(version, reason, before.version)
    _say_deployed(deployed, as_json)


def _say_deployed(deployed: Deployed, as_json: bool) -> None:
    view = _view(deployed)
    if as_json:
        say_json(view)
        return
    say(f"in force: policy version {view.version} (AppConfig version {view.appconfig_version})")
    say("functions take it up within a minute; `pools list` and `status` show it then")


def _at(view: "policy_views.PolicyInForce") -> str:
    """When it came into force, for people."""
    return f"{datetime.fromisoformat(view.at).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if view.at else "-"


def _view(deployed: Deployed) -> "policy_views.PolicyInForce":
    return policy_queries.in_force(deployed.text, deployed.version, deployed.deployment, deployed.at, deployed.why)
