"""Defines what a person asks of the function that sets restored records right, and what it answers."""

from pydantic import Field

from nodeheal.contract.health_event import Frozen, UtcTime
from nodeheal.contract.job_acts import WHY_CHARACTERS


class ReconcileRequest(Frozen):
    """`why`: who asks, and the reason, for the record. Unless `is_to_apply`, the answer says what would be done."""

    why: str = Field(min_length=1, max_length=WHY_CHARACTERS)
    is_to_apply: bool = False


class CorrectionMade(Frozen):
    """One correction of the records: what it is about, and what is done."""

    about: str
    text: str


class ReconcileAnswer(Frozen):
    """What was set right, or would be. `lost_since` until `lost_until`: what the records do not know; none: nothing.

    `is_over`: nodeheal acts again. `waits_for`: the ranks that must end before.
    """

    lost_since: UtcTime | None = None
    lost_until: UtcTime | None = None
    corrections: tuple[CorrectionMade, ...] = ()
    waits_for: tuple[str, ...] = ()
    is_over: bool = False
