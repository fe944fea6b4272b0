"""What an agent's event says, once the node has proven that it is the node. See nodeheal/services/verify_event.py."""

from functools import cache

from lambdas.composition import Event, node_role_ids, ports
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
    now = ports().clock().timestamp()
    return verify(SignedEvent.model_validate(detail), detail_type, node_keys(), node_role_ids(), now).event


@cache
def node_keys() -> DynamoNodeKeys:
    """One a process, so that a key is read once."""
    return DynamoNodeKeys(client("dynamodb"), names.HEARTBEATS_TABLE)
