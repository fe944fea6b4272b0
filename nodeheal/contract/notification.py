"""What a human needs."""

from pydantic import Field

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.vocabulary import Escalation, Family, Phase

SUBJECT_CHARACTERS = 99  # SNS refuses an email subject of 100 or more


class Notification(Frozen):
    """One email: a subject that says it all on a phone, and a body to act on.

    All but key, subject and body travel as attributes of the message, so that a subscription may choose by them.
    """

    key: str = Field(description="sent once: a second notification with this key is folded")
    subject: str = Field(max_length=SUBJECT_CHARACTERS)
    body: str
    severity: str = Field(pattern="^(INFO|PAGE)$")
    pool: str
    phase: Phase = Phase.ENDED
    node_id: str | None = None
    family: Family | None = Field(default=None, description="of the fault that it began with")
    escalation: Escalation | None = Field(default=None, description="why a human is needed; names the runbook")
    job_id: str | None = Field(default=None, description="the job that it is about, where it is about one")
    owner: str | None = Field(default=None, description="the job's owner, to whom it goes; nobody: to the operators")

    @property
    def attributes(self) -> dict[str, str]:
        """What a subscription may choose by. SNS takes no empty value: what is not known is left out."""
        known = {
            "severity": self.severity,
            "pool": self.pool,
            "phase": self.phase.value,
            "node": self.node_id,
            "family": self.family.value if self.family else None,
            "escalation": self.escalation.value if self.escalation else None,
            "job": self.job_id,
            "owner": self.owner,
        }
        return {name: value for name, value in known.items() if value}
