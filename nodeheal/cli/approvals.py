"""`nodeheal approve` and `nodeheal refuse`: answer what nodeheal asks, without the email."""

from typing import Annotated

import typer

from nodeheal.api import lookup, questions
from nodeheal.cli import complete, connect
from nodeheal.cli.connect import Table, Why, clearly
from nodeheal.cli.say import say
from nodeheal.contract import acts, names

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
    _answer(incident, acts.Approve, why, table)


def refuse(incident: IncidentId, why: Why, table: Table = names.TABLE) -> None:
    """Refuse what nodeheal proposes. The incident is handed to a human."""
    _answer(incident, acts.Refuse, why, table)


def _answer(incident: str, answer: "type[acts.Approve | acts.Refuse]", why: str, table: str) -> None:
    reason = connect.reason(why)
    with clearly():
        world = connect.acting_ports(table)
        question = questions.open_question(lookup.incident_named(incident, world), world)
        done = connect.do(answer(incident=question.incident_id, turn=question.turn, why=reason), acts.AnswerTaken)
    say(f"{question.incident_id}: {done.text}")
