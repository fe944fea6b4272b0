"""`nodeheal policy`: look at the policy document, change it, and see what a change would change."""

import typer

app = typer.Typer(no_args_is_help=True, help="The policy document.")
