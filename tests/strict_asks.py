"""What a state machine asks of a service by itself is held to what that service takes, in every walk and simulation."""

from typing import Any
from unittest import mock

from nodeheal.simulation.asl import Ask, Execution
from sandbox.request_rules import complaints

# The integrations that are calls of a service: resource -> (service, operation).
CALLS = {"sns:publish": ("sns", "Publish"), "dynamodb:updateItem": ("dynamodb", "UpdateItem")}


def check(ask: Ask) -> None:
    """Raises AssertionError for a call that AWS would refuse."""
    call = CALLS.get(ask.resource.partition(":::")[2])
    found = complaints(*call, ask.arguments) if call is not None else []
    assert not found, f"{ask.state}: AWS would refuse its call: {'; '.join(found)}"


def check_every_ask() -> None:
    """From now on, in this process."""
    original = Execution._ask

    def asked(self: Execution, state: Any) -> Ask:
        ask = original(self, state)
        check(ask)
        return ask

    mock.patch.object(Execution, "_ask", asked).start()
