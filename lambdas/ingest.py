"""ingest: health events from the queue, in batches. See nodeheal/services/ingest.py."""

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from pydantic import BaseModel, Field, Json, ValidationError

from lambdas.composition import Event, emit, explain, logger, policy, ports, quarantine
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent
from nodeheal.domain.measures import of_fault
from nodeheal.services.ingest import ingest


class Impostor(Exception):
    """An event that only an operator may send came from somebody else."""


class Envelope(BaseModel):
    """EventBridge's wrapping; it has more fields, which say nothing to us."""

    source: str
    detail: HealthEvent


class Posted(BaseModel):
    """SNS's wrapping: an event that a node has published because the bus took none."""

    topic: str = Field(alias="TopicArn", pattern=rf":{names.FALLBACK_TOPIC}$")
    detail: Json[HealthEvent] = Field(alias="Message")

    @property
    def source(self) -> str:
        """Whoever may publish there is a node, whatever it calls itself."""
        return names.AGENT_SOURCE


class Wrapping(BaseModel):
    """What tells the two apart: SNS writes a topic outside of what it was given, and EventBridge none."""

    topic: str = Field(default="", alias="TopicArn")


def handler(event: Event, context: object) -> Event:
    """What cannot be read goes to quarantine with its reason; what cannot be stored now comes back later."""
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    answer = process_partial_response(event=event, record_handler=_take, processor=processor, context=None)
    return dict(answer)


def _take(record: SQSRecord) -> None:
    try:
        wrapping = Posted if Wrapping.model_validate_json(record.body).topic else Envelope
        envelope = wrapping.model_validate_json(record.body)
        health_event = envelope.detail
        if health_event.code == names.OPERATOR_REQUEST and envelope.source != names.OPERATOR_SOURCE:
            raise Impostor(f"{health_event.node_id} speaks as an operator from {envelope.source}")
    except (ValidationError, Impostor) as error:
        why = explain(error) if isinstance(error, ValidationError) else str(error)
        return quarantine("ingest", record.body, why)
    became = ingest(health_event, ports(), policy())
    emit(lambda: of_fault(health_event.family, health_event.verdict))
    logger().info(
        "event ingested",
        extra={"became": became, "event_id": health_event.event_id, "node": health_event.node_id},
    )
