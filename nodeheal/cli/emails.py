"""`nodeheal emails`: subscriptions that nobody can end with a forwarded email."""

from typing import Annotated

import typer

from nodeheal.cli import connect
from nodeheal.cli.connect import clearly
from nodeheal.cli.say import say

app = typer.Typer(no_args_is_help=True, help="Email subscriptions of this deployment.")


@app.callback()
def main() -> None:
    """The addresses that nodeheal sends emails to."""


@app.command()
def confirm(
    link: Annotated[str, typer.Argument(help='the link in the email "AWS Notification - Subscription Confirmation"')],
) -> None:
    """Confirm a subscription in your name. Do not open the link: give it here.

    An address that was confirmed by a click can be unsubscribed by anybody who has one of its emails. One that was
    confirmed by this command can only be unsubscribed with rights to the topic.
    """
    with clearly():
        subscription = connect.confirmations().confirm(link)
    say(f"confirmed; only an AWS identity with rights to it can end it: {subscription}")
