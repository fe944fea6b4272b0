"""Defines the common part of EventBridge's events, and how a time becomes a version."""

from datetime import datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Foreign(BaseModel):
    """The part of a foreign event that is read: its owner adds fields over time, so unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, frozen=True)


class ForeignEvent(Foreign):
    """EventBridge's envelope. `event_id` is the same for every delivery of an event."""

    event_id: str = Field(alias="id", min_length=1)
    time: AwareDatetime


def milliseconds(at: datetime) -> int:
    """Convert a time into a version that only grows."""
    return int(at.timestamp() * 1000)
