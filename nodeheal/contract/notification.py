"""What a human needs."""

from pydantic import Field

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.vocabulary import Ending, Escalation, Family, Phase

SUBJECT_CHARACTERS = 99  # SNS refuses an email subject of 100 or more
PAGE, INFO = "PAGE", "INFO"


class Notification(Frozen):
    """What people are told: an email, whole, and the facts that the other channels are rendered from.

    The email has a subject that says it all on a phone, and a body to act on. `attributes` travel with it, so that a
    subscription may choose by them. A body may hold links with which a recovery is approved: it goes by email only.
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
    incident_id: str | None = Field(default=None, description="the incident that it is about, where it is about one")
    ending: Ending | None = Field(default=None, description="how that incident has ended, where this says so")
    needed: tuple[str, ...] = Field(
        default=(), description="what people have to do, and commands; the first thing first"
    )
    link: str = Field(default="", description="address of the incident's execution in the console; empty: not known")
    channel: str | None = Field(
        default=None, description="a digest: goes to this channel only, and at most once; nobody: to all that take it"
    )

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
