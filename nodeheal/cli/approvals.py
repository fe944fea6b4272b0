"""`nodeheal approve` and `nodeheal refuse`: answer what nodeheal asks, without the email."""

from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.cli import complete, connect
from nodeheal.cli.connect import Table, Why, clearly
from nodeheal.cli.say import say
from nodeheal.contract import names

if TYPE_CHECKING:
    from nodeheal.contract.acts import Approve, Refuse

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
    from nodeheal.contract.acts import Approve

    _answer(incident, Approve, why, table)


def refuse(incident: IncidentId, why: Why, table: Table = names.TABLE) -> None:
    """Refuse what nodeheal proposes. The incident is handed to a human."""
    from nodeheal.contract.acts import Refuse

    _answer(incident, Refuse, why, table)


def _answer(incident: str, answer: "type[Approve | Refuse]", why: str, table: str) -> None:
    from nodeheal.api.lookup import incident_named
    from nodeheal.api.questions import open_question
    from nodeheal.contract.acts import AnswerTaken

    reason = connect.reason(why)
    with clearly():
        world = connect.acting_ports(table)
        question = open_question(incident_named(incident, world), world)
        done = connect.do(answer(incident=question.incident_id, turn=question.turn, why=reason), AnswerTaken)
    say(f"{question.incident_id}: {done.text}")
