"""`nodeheal owners`: who hears what becomes of their own jobs."""

from typing import Annotated

import typer

from nodeheal.cli import connect
from nodeheal.cli.connect import clearly
from nodeheal.cli.say import say
from nodeheal.domain.jobs.owner import parse_owner

app = typer.Typer(
    no_args_is_help=True, help="Owners of jobs: they get an email when their job stops, runs again, or stays down."
)


@app.callback()
def main() -> None:
    """The owners of jobs: they hear when theirs stop, run again, or stay down."""


@app.command()
def subscribe(email: Annotated[str, typer.Argument(help="the address that their jobs name as `owner`")]) -> None:
    """Send an address the emails about its own jobs. It must confirm in an email from AWS."""
    with clearly():
        owner = parse_owner(email)
        is_confirmed = connect.owners().subscribe(owner)
    if is_confirmed:
        say(f"{owner.address} gets the emails about its jobs")
    else:
        say(f"{owner.address} has an email from AWS: once its link is followed, it gets the emails about its jobs")
