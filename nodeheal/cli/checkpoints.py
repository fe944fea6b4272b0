"""`nodeheal checkpoints`: which checkpoints are in a directory, which are whole, and where a run would go on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.api import file_views
from nodeheal.checkpoints import apart
from nodeheal.cli.connect import FAILED, AsJson
from nodeheal.cli.say import say, say_json
from nodeheal.cli.table import say_table
from nodeheal.contract.vocabulary import CheckpointFormat
from nodeheal.domain.humanize import counted

if TYPE_CHECKING:
    from nodeheal.checkpoints.found import DirectoryListing

app = typer.Typer(no_args_is_help=True, help="Checkpoints in a directory: which are complete, and which is the newest.")

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="where a job keeps its checkpoints")]
Format = Annotated[CheckpointFormat, typer.Option("--format", help="auto: recognise it")]
Seconds = Annotated[float, typer.Option("--seconds", min=1, help="give up on a file system that hangs")]


@app.command("list")
def list_all(
    directory: Directory, wanted: Format = CheckpointFormat.auto, seconds: Seconds = 60, as_json: AsJson = False
) -> None:
    """Show the checkpoints of a directory, the newest first, and what is wrong with each."""
    _show(_look(directory, wanted, seconds), as_json)


@app.command()
def verify(
    directory: Directory, wanted: Format = CheckpointFormat.auto, seconds: Seconds = 60, as_json: AsJson = False
) -> None:
    """Check every checkpoint of a directory. Exit code 1: one is incomplete, or there is none."""
    listing = _look(directory, wanted, seconds)
    _show(listing, as_json)
    if not listing.checkpoints or any(not checkpoint.is_valid for checkpoint in listing.checkpoints):
        raise typer.Exit(FAILED)


@app.command()
def latest(
    directory: Directory, wanted: Format = CheckpointFormat.auto, seconds: Seconds = 60, as_json: AsJson = False
) -> None:
    """Print the path of the newest complete checkpoint. Exit code 1: there is none. Skipped ones are on stderr."""
    listing = _look(directory, wanted, seconds, to_newest_valid=True)
    newest = listing.newest_valid
    if as_json:
        _show(listing, as_json)
    else:
        for checkpoint in listing.skipped:
            say(f"skipped {checkpoint.told}", aside=True)
        if newest is not None:
            say(newest.path)
    if newest is None:
        say(
            f"{directory}: {listing.why_incomplete or 'no whole checkpoint of a format that nodeheal knows'}",
            aside=True,
        )
        raise typer.Exit(FAILED)


def _look(
    directory: Path, wanted: CheckpointFormat, seconds: float, *, to_newest_valid: bool = False
) -> "DirectoryListing":
    """The listing. Where nobody could look, that is said, and it is over."""
    listing = apart.list_apart(str(directory.absolute()), wanted, seconds, to_newest_valid=to_newest_valid)
    if listing.problem:
        say(f"{directory}: {listing.problem}", aside=True)
        raise typer.Exit(FAILED)
    return listing


def _show(listing: "DirectoryListing", as_json: bool) -> None:
    if as_json:
        newest = listing.newest_valid
        fields = {**vars(listing), "newest_valid": newest.path if newest else None}
        say_json(file_views.CheckpointListing.model_validate(fields, from_attributes=True))
        return
    if not listing.checkpoints:
        say(f"{listing.directory}: no checkpoints of a format that nodeheal knows")
        return
    rows = [
        (
            "-" if checkpoint.step is None else str(checkpoint.step),
            "whole" if checkpoint.is_valid else "BROKEN",
            checkpoint.path.removeprefix(f"{listing.directory}/"),
            checkpoint.problem or checkpoint.remark,
        )
        for checkpoint in listing.checkpoints
    ]
    say_table(("STEP", "STATE", "NAME", "WHY"), rows)
    whole = sum(checkpoint.is_valid for checkpoint in listing.checkpoints)
    say(f"{listing.format}: {counted(whole, 'checkpoint')} of {len(rows)} whole")
    if listing.left_out:
        say(f"{counted(listing.left_out, 'older checkpoint')} not looked at")
