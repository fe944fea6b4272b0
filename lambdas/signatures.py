"""What an agent's event says, once the node has proven that it is the node. See nodeheal/services/verify_event.py."""

import os
from functools import cache

from lambdas.composition import Event, ports
from nodeheal.adapters.aws.calls import client
from nodeheal.adapters.aws.node_keys import DynamoNodeKeys
from nodeheal.contract import names
from nodeheal.contract.signed_event import SignedEvent
from nodeheal.services.verify_event import verify

_SIGNED = "signed"


def is_signed(detail: Event) -> bool:
    """Whether it came in the form in which agents sign. Agents of 0.1 do not."""
    return _SIGNED in detail


def proven(detail: Event, detail_type: str) -> dict[str, object]:
    """The event that the node has signed. Raises Forged, ValidationError, NotAccepted."""
    roles = os.environ.get(names.ENV_NODE_ROLE_IDS, "").split(",")
    now = ports().clock().timestamp()
    return verify(SignedEvent.model_validate(detail), detail_type, node_keys(), roles, now).event


@cache
def node_keys() -> DynamoNodeKeys:
    """One a process, so that a key is read once."""
    return DynamoNodeKeys(client("dynamodb"), names.HEARTBEATS_TABLE)
