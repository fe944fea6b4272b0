"""`nodeheal approve` and `nodeheal refuse`: answer what nodeheal asks, without the email."""

import getpass
from typing import Annotated

import typer

from nodeheal.cli import complete, connect
from nodeheal.cli.connect import FAILED, Table, Why, clearly
from nodeheal.cli.say import say
from nodeheal.contract import names

IncidentId = Annotated[
    str,
    typer.Argument(
        metavar="INCIDENT",
        help="its id, its short id as lists show it, or `latest`",
        autocompletion=complete.incidents,
    ),
]


def approve(incident: IncidentId, why: Why, table: Table = names.TABLE) -> None:
    """Approve what nodeheal proposes in an incident."""
    _answer(incident, "approve", why, table)


def refuse(incident: IncidentId, why: Why, table: Table = names.TABLE) -> None:
    """Refuse what nodeheal proposes. The incident is handed to a human."""
    _answer(incident, "refuse", why, table)


def _answer(incident: str, answer: str, why: str, table: str) -> None:
    from nodeheal.cli.lookup import incident_named
    from nodeheal.domain.recovery.approval_links import Answer
    from nodeheal.services.operators.answer_approval import answer_approval, open_question

    connect.on_record(why)
    with clearly():
        world = connect.acting_ports(table)
        incident = incident_named(incident, world)
        question = open_question(incident, world)
        answered = answer_approval(
            question, Answer(answer), f"{getpass.getuser()} (command)", " ".join(why.split()), world
        )
    say(f"{incident}: {answered.text}")
    if not answered.is_taken:
        raise typer.Exit(FAILED)
