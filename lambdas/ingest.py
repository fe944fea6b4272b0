"""ingest: health events from the queue, in batches. See nodeheal/services/intake/ingest.py."""

from datetime import UTC, datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field, Json, ValidationError

from lambdas.composition import emit_fault, explain, logger, policy, ports, quarantine, queued
from lambdas.signatures import proven, read_fact
from nodeheal.contract import names
from nodeheal.contract.health_event import EVIDENCE_BYTES, HealthEvent
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.verify_event import Forged

# An operator's clock may be off by so much: AWS takes no request that is signed further off.
CLOCK_SECONDS = 300


class Envelope(BaseModel):
    """EventBridge's wrapping; it has more fields, which say nothing to us."""

    source: str
    time: AwareDatetime
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
    became = ingest(health_event, ports(), policy())
    # An event that is only counted costs no read and no log line: a node may send hundreds a second.
    if became not in (Ingested.UNENROLLED, Ingested.TOO_MANY):
        emit_fault(health_event.node_id, health_event.family, health_event.code, health_event.verdict)
    logger().info(
        "event ingested",
        extra={"became": became, "event_id": health_event.event_id, "node": health_event.node_id},
    )


def _read(envelope: Envelope | Posted) -> HealthEvent:
    """The event, of an operator (whom IAM lets use that source) or of a node. Raises Forged, ValidationError."""
    source, detail = envelope.source, envelope.detail
    if isinstance(envelope, Envelope) and source == names.OPERATOR_SOURCE:
        return _read_request(HealthEvent.model_validate(detail), envelope.time)
    event = read_fact(HealthEvent, proven(detail, names.NODE_HEALTH_REPORTED))
    if event.code in (names.OPERATOR_REQUEST, names.NEW_NODE) or not event.is_from_node:
        raise Forged(f"{event.node_id} speaks as an operator, as AWS or as nodeheal from {source}")
    return event


def _read_request(request: HealthEvent, at: datetime) -> HealthEvent:
    """An operator's request, which is nobody else's word. Raises Forged.

    Far from the bus's own time `at` the operator's clock is wrong: then the bus's time counts, and the record says so.
    """
    if request.code != names.OPERATOR_REQUEST or request.is_from_node:
        raise Forged(f"an operator may send requests only, and no {request.code!r} of {request.source!r}")
    if abs((request.observed_at - at).total_seconds()) <= CLOCK_SECONDS:
        return request
    told = f"{request.evidence} (the request was dated {request.observed_at:%Y-%m-%d %H:%M:%S} UTC)"
    return request.model_copy(update={"observed_at": at.astimezone(UTC), "evidence": told[-EVIDENCE_BYTES:]})


handler = queued("ingest", _take)
