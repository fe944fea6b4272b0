"""Defines the common part of EventBridge's events, and how a time becomes a version."""

from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Foreign(BaseModel):
    """The part of a foreign event that is read: its owner adds fields over time, so unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, frozen=True)


class ForeignEvent(Foreign):
    """EventBridge's envelope. `event_id` is the same for every delivery of an event."""

    event_id: str = Field(alias="id", min_length=1)
    time: AwareDatetime


# A source's clock may be off by so much, and an event takes a moment to the bus.
AHEAD = timedelta(minutes=5)


def dated(event: ForeignEvent, at: datetime | None) -> tuple[datetime, str]:
    """Return (when the source says that it happened, nothing more to tell). Without such a time it is the bus's own.

    A time that lies ahead of the bus's own is wrong: then it is the bus's as well, and the second is a sentence.
    """
    if at is None or at <= event.time + AHEAD:
        return at or event.time, ""
    return event.time, f" Its source dates it {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, ahead of the bus's time."


def milliseconds(at: datetime) -> int:
    """Convert a time into a version that only grows."""
    return int(at.timestamp() * 1000)
