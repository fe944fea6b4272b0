"""Parses the commands that a page or an email names."""

import typer

from nodeheal.cli.main import app


def must_parse(arguments: list[str]) -> None:
    """Parse as the real CLI does, and run nothing."""
    command, left = typer.main.get_command(app), list(arguments)
    while subcommands := getattr(command, "commands", None):
        name = left.pop(0)
        assert name in subcommands, f"no such command: {name}"
        command = subcommands[name]
    command.make_context(str(command.name), left)
