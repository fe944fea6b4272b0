"""What a human needs."""

from pydantic import Field

from nodeheal.contract.health_event import Frozen

SUBJECT_CHARACTERS = 99  # SNS refuses an email subject of 100 or more


class Notification(Frozen):
    """One email: a subject that says it all on a phone, and a body to act on."""

    key: str = Field(description="sent once: a second notification with this key is folded")
    subject: str = Field(max_length=SUBJECT_CHARACTERS)
    body: str
    severity: str = Field(pattern="^(INFO|PAGE)$")
    pool: str
