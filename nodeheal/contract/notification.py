"""Defines the messages to people."""

from pydantic import Field

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.vocabulary import Ending, Escalation, Family, Phase

SUBJECT_CHARACTERS = 99  # SNS refuses an email subject of 100 or more characters
PAGE, INFO = "PAGE", "INFO"


class Notification(Frozen):
    """A message to people: a whole email, and the facts that the other channels are rendered from.

    The subject of the email is complete on a phone; its body says what to do. `attributes` let subscriptions filter. A
    body may contain links that approve a recovery: it goes by email only.
    """

    key: str = Field(description="sent once: a second notification with this key is folded")
    subject: str = Field(max_length=SUBJECT_CHARACTERS)
    body: str
    severity: str = Field(pattern="^(INFO|PAGE)$")
    pool: str
    phase: Phase = Phase.ENDED
    node_id: str | None = None
    family: Family | None = Field(default=None, description="of the fault that the incident began with")
    escalation: Escalation | None = Field(default=None, description="why a human is needed; names the runbook")
    job_id: str | None = Field(default=None, description="the job that it is about, if any")
    owner: str | None = Field(default=None, description="the job's owner, who receives it; none: the operators")
    incident_id: str | None = Field(default=None, description="the incident that it is about, if any")
    ending: Ending | None = Field(default=None, description="how that incident has ended, if this reports its end")
    needed: tuple[str, ...] = Field(
        default=(), description="what people have to do, and commands; the first thing first"
    )
    link: str = Field(default="", description="URL of the incident's execution in the console; empty: not known")
    channel: str | None = Field(
        default=None, description="a digest: goes to this channel only, and at most once; none: to all that accept it"
    )

    @property
    def attributes(self) -> dict[str, str]:
        """Return the attributes for filters. SNS accepts no empty value, so unknown ones are left out."""
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
