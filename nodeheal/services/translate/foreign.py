"""What every foreign event has in common, and what a translator makes of it: drafts of health events.

A draft names the machine as its cloud does. Which node that is, in which pool and on which boot, `take_signal` knows.
"""

from dataclasses import dataclass
from datetime import datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from nodeheal.contract.vocabulary import Family, Verdict


class Foreign(BaseModel):
    """The part of a foreign event that we read: its owner adds fields over time, so unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, frozen=True)


class ForeignEvent(Foreign):
    """EventBridge's envelope. `event_id` is the same for every delivery of an event."""

    event_id: str = Field(alias="id", min_length=1)
    time: AwareDatetime


@dataclass(frozen=True)
class Draft:
    """What a source says about one machine.

    `key` is the same for every delivery of the same fact. A draft that `is_weak` opens no incident by itself. With a
    `version`, an older one of the same `topic` that comes after a newer one is history. A topic may end in `#` and what
    its versions count for: only the newest of these is remembered.
    """

    instance_id: str
    source: str
    family: Family
    code: str
    key: str
    observed_at: datetime
    subcode: str | None = None
    verdict: Verdict | None = None  # None: as the catalog has it
    evidence: str = ""
    is_weak: bool = False
    takes_node_away: bool = False  # the machine is gone, or about to be: no fault where nodeheal wants it so
    topic: str = ""
    version: int | None = None


def milliseconds(at: datetime) -> int:
    """A time as a version that only grows."""
    return int(at.timestamp() * 1000)
