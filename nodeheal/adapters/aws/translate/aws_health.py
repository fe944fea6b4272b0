"""AWS Health Event: planned changes of machines, and issues of single machines.

Delivered durably, in pages of affected entities, with a backup copy from another Region. The ARN is the same in every
account, so only ARN, communication and machine together identify a fact.
"""

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.ports.signals import Draft

# A nearer change needs a human: the job will hardly end by itself before it.
SOON = timedelta(hours=24)
_CODE_PREFIX = "AWS_EC2_"
_DRIVE_DEGRADED = "AWS_EC2_INSTANCE_STORE_DRIVE_PERFORMANCE_DEGRADED"
# A part of a type code -> the effect on the machine. The order matters: a retirement may mention maintenance, too.
_PLANS = (
    ("RETIREMENT", "retirement"),
    ("TERMINATION", "retirement"),
    ("INSTANCE_STOP", "stop"),
    ("REBOOT", "reboot"),
    ("NETWORK_MAINTENANCE", "maintenance"),
    ("POWER_MAINTENANCE", "maintenance"),
    ("SYSTEM_MAINTENANCE", "maintenance"),
)
_OVER = ("closed", "RESOLVED")


def _as_time(value: object) -> object:
    """Parse a time of the detail, in the format of mail headers; those of the envelope have another format."""
    return parsedate_to_datetime(value) if isinstance(value, str) and value[:3].isalpha() else value


HealthTime = Annotated[AwareDatetime, BeforeValidator(_as_time)]


class _Entity(Foreign):
    value: str = Field(alias="entityValue")
    status: str = ""


class _Description(Foreign):
    text: str = Field(default="", alias="latestDescription")


class _Detail(Foreign):
    arn: str = Field(alias="eventArn", min_length=1)
    service: str
    type_code: str = Field(alias="eventTypeCode", min_length=1)
    category: str = Field(alias="eventTypeCategory")
    communication_id: str = Field(default="", alias="communicationId")
    status: str = Field(default="open", alias="statusCode")
    start: HealthTime | None = Field(default=None, alias="startTime")
    description: tuple[_Description, ...] = Field(default=(), alias="eventDescription")
    entities: tuple[_Entity, ...] = Field(default=(), alias="affectedEntities")


class AwsHealthEvent(ForeignEvent):
    """The event."""

    detail: _Detail


def from_aws_health(event: AwsHealthEvent) -> list[Draft]:
    """Return one draft for each affected EC2 instance. Account-wide events and those of other services give none."""
    detail = event.detail
    if detail.service != "EC2" or detail.category not in ("issue", "scheduledChange"):
        return []
    return [_draft(event, entity) for entity in detail.entities if entity.value.startswith("i-")]


def _draft(event: AwsHealthEvent, entity: _Entity) -> Draft:
    detail = event.detail
    is_over = detail.status in _OVER or entity.status in _OVER
    code, subcode = _code_of(detail, event.time)
    description = " ".join(d.text for d in detail.description)
    starts = f" from {detail.start:%Y-%m-%d %H:%M} UTC" if detail.start else ""
    return Draft(
        instance_id=entity.value,
        source="aws.health",
        family=Family.host,
        code=code,
        subcode=subcode,
        verdict=Verdict.OK if is_over else None,
        key=f"{detail.arn}|{detail.communication_id or event.event_id}|{entity.value}",
        observed_at=event.time,
        evidence=f"{detail.type_code} ({detail.status}){starts}: {description}",
    )


def _code_of(detail: _Detail, now: datetime) -> tuple[str, str | None]:
    """Return (code, sub-code). An unknown type is reported, and nothing is done for it."""
    plan = next((plan for word, plan in _PLANS if word in detail.type_code), None)
    if detail.category == "scheduledChange" and plan is not None:
        is_soon = plan in ("retirement", "stop") and detail.start is not None and detail.start - now <= SOON
        return "scheduled_event", f"soon/{plan}" if is_soon else plan
    if detail.type_code == _DRIVE_DEGRADED:
        return "instance_store_degraded", None
    return "aws_issue", detail.type_code.removeprefix(_CODE_PREFIX)
