"""Verifies which node has sent an event. See nodeheal/services/intake/verify_event.py."""

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from lambdas.composition import Event, node_role_ids, ports
from nodeheal.adapters.aws.calls import client
from nodeheal.adapters.aws.node_keys import DynamoNodeKeys
from nodeheal.contract import names
from nodeheal.contract.health_event import NodeFact
from nodeheal.contract.signature import EARLY_SECONDS
from nodeheal.contract.signed_event import SignedEvent
from nodeheal.services.intake.agent_pods import place_agent_pod
from nodeheal.services.intake.verify_event import Forged, verify

_SIGNED = "signed"


Fact = TypeVar("Fact", bound=NodeFact)


def read_fact(kind: type[Fact], told: Mapping[str, object]) -> Fact:
    """What a node says, as an event of this kind. Raises ValidationError; Forged where it is dated in the future, in
    which it would stand before all that others say.
    """
    fact = kind.model_validate(told)
    if fact.observed_at.timestamp() > ports().clock().timestamp() + EARLY_SECONDS:
        raise Forged(f"{fact.node_id} dates an event {fact.observed_at:%Y-%m-%d %H:%M:%S}, which is in the future")
    return fact


def proven(detail: Event, detail_type: str) -> dict[str, object]:
    """The event that the node has signed. Raises Forged, ValidationError, NotAccepted."""
    if _SIGNED not in detail:
        raise Forged("the event is not signed by its node")
    now = ports().clock().timestamp()
    return verify(SignedEvent.model_validate(detail), detail_type, node_keys(), node_role_ids(), now).event


@cache
def node_keys() -> DynamoNodeKeys:
    """One a process, so that a key is read once."""
    return DynamoNodeKeys(client("dynamodb"), names.HEARTBEATS_TABLE, lambda pod: place_agent_pod(pod, ports()))
