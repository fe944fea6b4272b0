"""`nodeheal doctor`: what stands in the way of a deployment, and what is wrong with one."""

import shutil
import sys
import textwrap
from collections.abc import Iterator

import typer

from nodeheal.adapters.aws import account, failures
from nodeheal.adapters.aws.calls import client, own_role_arn
from nodeheal.adapters.aws.finding import BAD, GOOD, UNKNOWN, WARNING, DoctorFinding
from nodeheal.adapters.ecs import account_look as ecs_look
from nodeheal.adapters.kubernetes import account_look as kubernetes_look
from nodeheal.adapters.slurm import account_look as slurm_look
from nodeheal.api import views
from nodeheal.cli import connect
from nodeheal.cli.connect import AsJson, Table
from nodeheal.cli.say import say, say_json
from nodeheal.contract import names
from nodeheal.contract.vocabulary import SchedulerKind

UNWELL = 1
_MARKS = {GOOD: "ok     ", WARNING: "WARN   ", BAD: "FAIL   ", UNKNOWN: "UNKNOWN"}


def doctor(table: Table = names.TABLE, as_json: AsJson = False) -> None:
    """Look at the account before and after a deployment: what is wrong, and what to do. Nothing is changed.

    The exit code is 1 where something fails.
    """
    results = []
    for finding in findings(table):
        results.append(finding)
        if not as_json:
            _tell(finding)
    if as_json:
        say_json([views.AccountFinding.model_validate(finding, from_attributes=True) for finding in results])
    counts = {state: sum(finding.state == state for finding in results) for state in (BAD, WARNING, UNKNOWN)}
    if not as_json:
        summary = ", ".join(f"{count} {_MARKS[state].strip()}" for state, count in counts.items() if count)
        say("", summary or "all is well")
    if counts[BAD]:
        raise typer.Exit(UNWELL)


def findings(table: str) -> Iterator[DoctorFinding]:
    """Look at the account and its deployment, causes before consequences."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        sts = client("sts")
        who = sts.get_caller_identity()["Arn"]
    except (BotoCoreError, ClientError) as error:
        yield _failed(failures.explain(error))
        return
    if sts.meta.region_name in (None, "aws-global"):  # STS alone answers without one
        yield _failed(failures.NO_REGION)
        return
    yield DoctorFinding("credentials", GOOD, f"{who} in {sts.meta.region_name}")
    registrations = {SchedulerKind.ECS: ecs_look.unregistered}
    examined = account.Account(client, lambda: connect.ports(table), _document, registrations, table)
    of_controllers = kubernetes_look.kubernetes_look(lambda: own_role_arn(names.CONTROLLER_ROLE))
    yield from account.examine(examined, (slurm_look.slurm_look(connect.slurm), of_controllers))


def _document() -> str:
    return connect.policy_documents().in_force().text


def _failed(failure: "failures.Failure") -> DoctorFinding:
    return DoctorFinding(failure.subject, BAD, failure.detail, failure.todo)


def _wrapped(head: str, text: str) -> str:
    """In a terminal, lines that fit; in a pipe, one line."""
    if not sys.stdout.isatty():
        return f"{head}{text}"
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)


def _tell(finding: DoctorFinding) -> None:
    say(_wrapped(f"{_MARKS[finding.state]}  ", f"{finding.what}: {finding.detail}"))
    if finding.todo and finding.state != GOOD:
        say(_wrapped(f"{'':9}→ ", finding.todo))
    sys.stdout.flush()  # a look at a large fleet takes a while: each line comes when it is known
