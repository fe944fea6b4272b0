"""What the events of EventBridge have in common, and how a time becomes a version."""

from datetime import datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Foreign(BaseModel):
    """The part of a foreign event that we read: its owner adds fields over time, so unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, frozen=True)


class ForeignEvent(Foreign):
    """EventBridge's envelope. `event_id` is the same for every delivery of an event."""

    event_id: str = Field(alias="id", min_length=1)
    time: AwareDatetime


def milliseconds(at: datetime) -> int:
    """A time as a version that only grows."""
    return int(at.timestamp() * 1000)
