"""`nodeheal`: ask what would be done and why, before anything happens; read logs; look after nodes."""

import os
import sys
from errno import EDQUOT, EFBIG, EIO, ENOSPC

import typer

from nodeheal import __version__
from nodeheal.cli import (
    approvals,
    checkpoints,
    drill,
    emails,
    guardrails,
    incidents,
    jobs,
    nodes,
    owners,
    parse,
    policy,
)
from nodeheal.cli.classify import classify
from nodeheal.cli.doctor import doctor
from nodeheal.cli.explain import explain
from nodeheal.cli.replay import replay
from nodeheal.cli.say import BAD_INPUT, say
from nodeheal.cli.simulate import simulate

_UNWRITABLE = (ENOSPC, EDQUOT, EIO, EFBIG)

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


@app.command()
def version() -> None:
    """Print the version."""
    say(__version__)


app.command()(explain)
app.command()(classify)
app.command()(replay)
app.command()(simulate)
app.command()(doctor)
app.command()(approvals.approve)
app.command()(approvals.refuse)
app.command()(drill.inject)
app.command()(guardrails.pause)
app.command()(guardrails.unpause)
app.add_typer(guardrails.breaker, name="breaker")
app.add_typer(parse.app, name="parse")
app.add_typer(policy.app, name="policy")
app.add_typer(nodes.app, name="nodes")
app.add_typer(incidents.app, name="incidents")
app.add_typer(jobs.app, name="jobs")
app.add_typer(owners.app, name="owners")
app.add_typer(emails.app, name="emails")
app.add_typer(checkpoints.app, name="checkpoints")


def _take_region_as_the_aws_cli_does() -> None:
    """AWS_REGION comes first. The SDK for Python reads AWS_DEFAULT_REGION only, so it might go to another Region."""
    region = os.environ.get("AWS_REGION")
    if region:
        os.environ["AWS_DEFAULT_REGION"] = region


def main() -> None:
    """The console script. That nobody could be told is no answer: it ends with neither 0 nor 1, and without a trace."""
    _take_region_as_the_aws_cli_does()
    try:
        app()
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        say(f"what was to be said cannot be written: {error.strerror}", aside=True)
        sys.exit(BAD_INPUT)
