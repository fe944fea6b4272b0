"""EC2 Instance-terminate Lifecycle Action: a group is about to remove one of its machines.

It arrives only where the group has a termination hook, and on a best-effort basis.
"""

from pydantic import Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent
from nodeheal.contract.vocabulary import Family
from nodeheal.ports.signals import Draft

_WARM_POOL = "WarmPool"


class _Detail(Foreign):
    instance_id: str = Field(alias="EC2InstanceId", min_length=1)
    group: str = Field(alias="AutoScalingGroupName")
    destination: str = Field(default="EC2", alias="Destination")


class AutoScalingTerminateEvent(ForeignEvent):
    """The event."""

    detail: _Detail


def from_auto_scaling(event: AutoScalingTerminateEvent) -> list[Draft]:
    """Return one draft. To the warm pool or to termination: in both cases the machine leaves."""
    where = "to the group's warm pool" if event.detail.destination == _WARM_POOL else "and is terminated"
    return [
        Draft(
            instance_id=event.detail.instance_id,
            source="aws.autoscaling",
            family=Family.host,
            code="group_termination",
            key=event.event_id,
            observed_at=event.time,
            evidence=f"leaves Auto Scaling group {event.detail.group} {where}",
            takes_node_away=True,
        )
    ]
