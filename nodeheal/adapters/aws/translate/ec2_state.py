"""EC2 Instance State-change Notification: the machine is stopped, or terminated.

A failed status check changes no state, so EC2 sends nothing for it: see cloudwatch_alarm.
"""

from pydantic import Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent
from nodeheal.contract.names import INSTANCE_GONE
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.fleet.liveness import STOPPED, TERMINATED
from nodeheal.ports.signals import Draft

# A machine that is going down counts as down: its processes have ended.
_MEANS = {"stopping": STOPPED, "stopped": STOPPED, "shutting-down": TERMINATED, "terminated": TERMINATED}


class _Detail(Foreign):
    instance_id: str = Field(alias="instance-id", min_length=1)
    state: str


class Ec2StateEvent(ForeignEvent):
    """The event."""

    detail: _Detail


def from_ec2_state(event: Ec2StateEvent) -> list[Draft]:
    """Return one draft for a machine that goes down; none for one that starts, whose agent reports itself."""
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
