"""EC2 Instance State-change Notification: the machine is stopped, or gone.

An instance that fails its status checks changes no state, so EC2 sends nothing for that: see cloudwatch_alarm.
"""

from pydantic import Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent
from nodeheal.contract.names import INSTANCE_GONE
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.fleet.liveness import STOPPED, TERMINATED
from nodeheal.ports.signals import Draft

# On its way down is as good as down: what ran there has ended.
_MEANS = {"stopping": STOPPED, "stopped": STOPPED, "shutting-down": TERMINATED, "terminated": TERMINATED}


class _Detail(Foreign):
    instance_id: str = Field(alias="instance-id", min_length=1)
    state: str


class Ec2StateEvent(ForeignEvent):
    """The event."""

    detail: _Detail


def from_ec2_state(event: Ec2StateEvent) -> list[Draft]:
    """One draft for a machine on its way down; none for one on its way up: its agent says so itself."""
    state = _MEANS.get(event.detail.state)
    if state is None:
        return []
    return [
        Draft(
            instance_id=event.detail.instance_id,
            source="aws.ec2",
            family=Family.host,
            code=INSTANCE_GONE,
            subcode=state,
            key=event.event_id,
            observed_at=event.time,
            evidence=f"EC2 says: {event.detail.state}",
            takes_node_away=True,
        )
    ]
