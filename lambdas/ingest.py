"""ingest: health events from the queue, in batches. See nodeheal/services/ingest.py."""

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from pydantic import BaseModel, ValidationError

from lambdas.composition import Event, explain, logger, policy, ports
from nodeheal.contract.health_event import HealthEvent
from nodeheal.services.ingest import ingest


class Envelope(BaseModel):
    """EventBridge's wrapping; it has more fields, which say nothing to us."""

    detail: HealthEvent


def handler(event: Event, context: object) -> Event:
    """What cannot be read goes to quarantine with its reason; what cannot be stored now comes back later."""
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    answer = process_partial_response(event=event, record_handler=_take, processor=processor, context=None)
    return dict(answer)


def _take(record: SQSRecord) -> None:
    try:
        health_event = Envelope.model_validate_json(record.body).detail
    except ValidationError as error:
        why = explain(error)
        ports().messenger.quarantine(record.body, why)
        logger().warning("event quarantined", extra={"why": why})
        return
    became = ingest(health_event, ports(), policy())
    logger().info(
        "event ingested",
        extra={"became": became, "event_id": health_event.event_id, "node": health_event.node_id},
    )
