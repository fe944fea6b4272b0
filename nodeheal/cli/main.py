"""Look after accelerator nodes: see what nodeheal does and why, answer it, and act by hand."""

import os
import sys
from collections.abc import Iterator, Mapping
from errno import EDQUOT, EFBIG, EIO, ENOSPC
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from nodeheal import __version__
from nodeheal.cli import kept_contexts
from nodeheal.cli.settings import context_file
from nodeheal.domain import complaints

BAD_INPUT = 2
_UNWRITABLE = (ENOSPC, EDQUOT, EIO, EFBIG)
LOOK, ACT, JOBS, POLICY, TRY = "Look", "Act", "Jobs", "Policy and set-up", "Try, without touching anything"

# Each command: where the help lists it, its module in nodeheal.cli, the function or group of that name there, and the
# help's line on it. A module is imported when its command runs, so that every command starts fast.
COMMANDS: dict[str, tuple[str, str, str, str]] = {
    "status": (LOOK, "status", "status", "Show the pools, what is under way, the jobs, and what waits for you."),
    "pools": (LOOK, "pools", "app", "Pools of nodes: their size, budget and breaker."),
    "nodes": (LOOK, "nodes", "app", "Nodes: see them, enrol them, take them out of service, give them back."),
    "incidents": (LOOK, "incidents", "app", "Incidents: what happened, why, and how it ended."),
    "explain": (LOOK, "explain", "explain", "Say what would be done about a fault, and why."),
    "console": (
        LOOK,
        "console",
        "console",
        "Serve the console on this machine: pages to look, to answer and to act, with your own credentials.",
    ),
    "approve": (ACT, "approvals", "approve", "Approve what nodeheal proposes in an incident."),
    "refuse": (ACT, "approvals", "refuse", "Refuse what nodeheal proposes. The incident is handed to a human."),
    "pause": (ACT, "guardrails", "pause", "Do nothing to a node, or in a pool, for a time. Faults are still reported."),
    "unpause": (ACT, "guardrails", "unpause", "End a pause before its time."),
    "breaker": (
        ACT,
        "guardrails",
        "breaker",
        "A pool's breaker: it opens when many nodes fail at once, and nothing more is isolated, rebooted or replaced "
        "until you reset it.",
    ),
    "reconcile": (
        ACT,
        "reconcile",
        "reconcile",
        "Set the records right after their table was restored: by the scheduler, EC2 and the executions.",
    ),
    "jobs": (JOBS, "jobs", "app", "Training jobs: submitted once, kept running."),
    "checkpoints": (
        JOBS,
        "checkpoints",
        "app",
        "Checkpoints in a directory: which are complete, and which is the newest.",
    ),
    "owners": (
        JOBS,
        "owners",
        "app",
        "Owners of jobs: they get an email when their job stops, runs again, or stays down.",
    ),
    "policy": (POLICY, "policy", "app", "The policy document: what nodeheal may do, where, and how often."),
    "contexts": (POLICY, "contexts", "app", "Deployments by name: which account, Region and table a command means."),
    "doctor": (
        POLICY,
        "doctor",
        "doctor",
        "Look at the account before and after a deployment: what is wrong, and what to do. Nothing is changed.",
    ),
    "emails": (POLICY, "emails", "app", "Email subscriptions of this deployment."),
    "simulate": (
        TRY,
        "simulate",
        "simulate",
        "Simulate a fleet for days or years. AWS is not asked. Exit code 1: an invariant was broken.",
    ),
    "replay": (TRY, "replay", "replay", "Decide past events by a policy. Nothing is touched, and AWS is not asked."),
    "inject": (
        ACT,
        "drill",
        "inject",
        "Drill: have a healthy node report a fault. What follows is real: where the pool acts, job and node stop.",
    ),
    "classify": (
        TRY,
        "classify",
        "classify",
        "Read a kernel log and print every fault in it as a line of JSON, as soon as it is found.",
    ),
    "parse": (TRY, "parse", "app", "Read the recorded output of a tool: verdict, faults, actions."),
}


# What people type who know kubectl, Slurm or another tool, and what it is here.
ELSEWHERE = {
    "apply": "jobs submit FILE or policy apply FILE",
    "cordon": "nodes drain NODE --why …",
    "describe": "nodes show NODE, jobs show NAME or incidents show INCIDENT",
    "drain": "nodes drain NODE --why …",
    "get": "nodes list, jobs list or incidents list",
    "help": "-h",
    "list": "nodes list, jobs list or incidents list",
    "logs": "jobs logs NAME",
    "reboot": "nodes reboot NODE --why …",
    "replace": "nodes replace NODE --why …",
    "sbatch": "jobs submit --slurm -- SCRIPT",
    "scancel": "jobs stop NAME --why …",
    "scontrol": "nodes show NODE, nodes drain NODE --why … or nodes release NODE --why …",
    "show": "nodes show NODE, jobs show NAME or incidents show INCIDENT",
    "sinfo": "status or nodes list",
    "squeue": "jobs list",
    "submit": "jobs submit FILE",
    "top": "jobs top",
    "uncordon": "nodes release NODE --why …",
    "version": "--version",
}
# They ask no account, or are what corrects a broken file of contexts.
OFFLINE = {"explain", "classify", "parse", "simulate", "replay", "checkpoints", "contexts"}


class Commands(Mapping[str, Any]):
    """The commands by name. Each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        """Raises KeyError where there is none."""
        panel, module, attribute, _ = COMMANDS[name]
        target = getattr(import_module(f"nodeheal.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            command: Any = get_group(target)
        else:
            alone = typer.Typer(add_completion=False)
            alone.command()(target)
            command = get_command(alone)
        command.name, command.rich_help_panel = name, panel
        return command

    def __iter__(self) -> Iterator[str]:
        """In the order of the help."""
        return iter(COMMANDS)

    def __len__(self) -> int:
        """How many there are."""
        return len(COMMANDS)


class Lazy(TyperGroup):
    """The top of the command. Typer would import every command to list their names."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = Commands()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command as the help and the shell list it: its name and its line."""
        if cmd_name not in COMMANDS:
            return None
        panel, _, _, line = COMMANDS[cmd_name]
        return TyperCommand(cmd_name, help=line, rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find and import the command. One of another tool is refused with ours."""
        if args and args[0] in ELSEWHERE:
            ctx.fail(f"No such command {args[0]!r}. Here it is: nodeheal {ELSEWHERE[args[0]]}")
        name, _, rest = super().resolve_command(ctx, args)
        return name, self.commands.get(name or ""), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Typer checks arguments with pydantic, whose words nobody should read."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _plainly(error)
            raise


def _plainly(error: typer.BadParameter) -> str:
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return error.message
    return "; ".join(complaint.why for complaint in complaints.complaints_of(error.__cause__, shows_values=True))


app = typer.Typer(
    cls=Lazy,
    no_args_is_help=True,
    help=__doc__,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"nodeheal {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    context: Annotated[
        str | None,
        typer.Option("--context", envvar="NODEHEAL_CONTEXT", help="one of `nodeheal contexts list`"),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Look after accelerator nodes: see what nodeheal does and why, answer it, and act by hand."""
    if ctx.invoked_subcommand not in OFFLINE:
        apply_context(context)


def apply_context(context: str | None) -> None:
    """Take profile, Region and table from the context: the one that was asked for, or the current one.

    AWS_REGION comes first, as in the AWS CLI. The SDK for Python reads AWS_DEFAULT_REGION only, so it might go to
    another Region.
    """
    if context or context_file().exists():
        kept_contexts.apply(context)
    region = os.environ.get("AWS_REGION")
    if region:
        os.environ["AWS_DEFAULT_REGION"] = region


def main() -> None:
    """The console script. Where stdout is full, it exits with 2, and without a traceback."""
    if sys.stdout is None:  # closed by the shell (>&-)
        sys.stderr.write("the output cannot be written: stdout is closed\n")
        sys.exit(BAD_INPUT)
    if os.environ.get("NO_COLOR"):
        os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = "1"  # else what Typer says itself stays bold and dim
    try:
        app()
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        sys.stderr.write(f"the output cannot be written: {error.strerror}\n")
        sys.exit(BAD_INPUT)
