"""ingest: health events from the queue, in batches. See nodeheal/services/intake/ingest.py."""

from typing import Any

from pydantic import BaseModel, Field, Json, ValidationError

from lambdas.composition import emit_fault, explain, logger, policy, ports, quarantine, queued
from lambdas.signatures import proven, read_fact
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Family
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.verify_event import Forged
from nodeheal.services.jobs.look_at_training import look_at_alert


class Envelope(BaseModel):
    """EventBridge's wrapping; it has more fields, which say nothing to us."""

    source: str
    detail: dict[str, Any]


class Posted(BaseModel):
    """SNS's wrapping: an event that a node has published because the bus took none."""

    topic: str = Field(alias="TopicArn", pattern=rf":{names.FALLBACK_TOPIC}$")
    detail: Json[dict[str, Any]] = Field(alias="Message")

    @property
    def source(self) -> str:
        """Only nodes may publish there."""
        return names.AGENT_SOURCE


class Wrapping(BaseModel):
    """Tells the two apart: SNS adds a topic outside of the message, EventBridge does not."""

    topic: str = Field(default="", alias="TopicArn")


def _take(body: str) -> None:
    """Take one health event. One that cannot be read goes to quarantine with its reason."""
    try:
        wrapping = Posted if Wrapping.model_validate_json(body).topic else Envelope
        envelope = wrapping.model_validate_json(body)
        health_event = _read(envelope)
    except (ValidationError, Forged) as error:
        why = explain(error) if isinstance(error, ValidationError) else str(error)
        return quarantine("ingest", body, why)
    if (health_event.family, health_event.code) == (Family.host, names.TRAINING_ALERT):
        return look_at_alert(health_event, ports(), policy())
    became = ingest(health_event, ports(), policy())
    # An event that is only counted costs no read and no log line: a node may send hundreds a second.
    if became not in (Ingested.UNENROLLED, Ingested.TOO_MANY):
        emit_fault(health_event.node_id, health_event.family, health_event.code, health_event.verdict)
    logger().info(
        "event ingested",
        extra={"became": became, "event_id": health_event.event_id, "node": health_event.node_id},
    )


def _read(envelope: Envelope | Posted) -> HealthEvent:
    """The event of a node. Raises Forged, ValidationError."""
    event = read_fact(HealthEvent, proven(envelope.detail, names.NODE_HEALTH_REPORTED))
    if event.code in {*names.ROUTINE_CHECKS, names.OPERATOR_REQUEST} or not event.is_from_node:
        raise Forged(f"{event.node_id} speaks as an operator, as AWS or as nodeheal from {envelope.source}")
    return event


handler = queued("ingest", _take)
